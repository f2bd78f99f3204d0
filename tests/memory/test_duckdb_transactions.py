"""Transactions as DuckDB uses them.

Its own transaction reads; each statement commits in a transaction of the service.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.memory.bank import Bank
from tests.memory.statements import CTX, insert, rows_of, update

from sparkport.catalog import Context, DMLOptions, Operation
from sparkport.errors import Conflict


@pytest.fixture
def bank() -> Bank:
    return Bank()


def _child(bank: Bank, parent: Context) -> Context:
    return parent.with_transaction(bank.catalog.begin_transaction(CTX))


def test_a_parent_sees_what_its_statements_have_committed(bank: Bank) -> None:
    parent = bank.begin()
    assert bank.amounts(parent) == ([100, 200], [1000, 2000])
    update(bank.savings, [{"amount": 5, "rowid": 0}])
    child = _child(bank, parent)
    update(bank.giro, [{"amount": 1, "rowid": 0}], child)
    bank.commit(child)
    assert bank.amounts(parent) == ([1, 200], [1000, 2000])
    child = _child(bank, parent)
    update(bank.giro, [{"amount": 2, "rowid": 0}], child)
    bank.commit(child)
    assert bank.amounts(parent) == ([2, 200], [1000, 2000])
    assert bank.amounts() == ([2, 200], [5, 2000])


def test_a_statement_changes_the_rows_that_its_parent_saw(bank: Bank) -> None:
    parent = bank.begin()
    rows_of(bank.giro, parent)
    update(bank.giro, [{"amount": 7, "rowid": 0}])
    child = _child(bank, parent)
    update(bank.giro, [{"amount": 1, "rowid": 0}], child)
    with pytest.raises(Conflict):
        bank.commit(child)
    assert bank.amounts()[0] == [7, 200]


def test_a_statement_that_begins_before_the_scan_pins_the_snapshot_of_both(bank: Bank) -> None:
    parent = bank.begin()
    child = _child(bank, parent)
    write = bank.giro.stage(child, Operation.UPDATE, DMLOptions())
    update(bank.giro, [{"amount": 7, "rowid": 0}])
    assert bank.amounts(parent)[0] == [100, 200]
    write.apply(pa.record_batch({"amount": [1], "rowid": [1]}))
    write.commit()
    bank.commit(child)
    assert bank.amounts()[0] == [7, 1]


def test_a_write_without_transaction_refreshes_its_parent_too(bank: Bank) -> None:
    parent = bank.begin()
    rows_of(bank.giro, parent)
    insert(
        bank.giro, [{"id": 3, "amount": 3}], Context(parent_transaction_id=parent.transaction_id)
    )
    assert bank.amounts(parent)[0] == [100, 200, 3]
