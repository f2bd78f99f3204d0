"""A transaction reads the same state again, although it soon holds no state of any table."""

from __future__ import annotations

import json
import uuid
from types import SimpleNamespace

import pytest
from tests.spark.test_states import TABLE, metadata

from sparkport.catalog import Context, Quotas, TransactionState
from sparkport.errors import Conflict, LimitExceeded
from sparkport.service.limits import LimitKeeper
from sparkport.service.settings import Limits
from sparkport.spark.iceberg.table_state import States, TableState
from sparkport.spark.lake import transactions as module
from sparkport.spark.lake.settings import LakeSettings
from sparkport.spark.lake.transaction import Note
from sparkport.spark.lake.transactions import Transactions


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


class History:
    """A table, and the transactions of its lake."""

    def __init__(self, settings: LakeSettings | None = None) -> None:
        self.states = States()
        self.transactions = Transactions(settings or LakeSettings(), self.states)
        self.uuid = str(uuid.uuid4())

    def after(self, commits: int, **changed: object) -> TableState:
        text = json.loads(metadata(commits, self.uuid)) | {
            key.replace("_", "-"): to for key, to in changed.items()
        }
        return self.states.add(TABLE, f"{commits} {sorted(changed)}", json.dumps(text), None)

    def reads(self, transaction: str, current: TableState) -> int | None:
        state = self.transactions.seen(transaction, current)
        return None if state.snapshot is None else state.snapshot.snapshot_id

    def is_noted(self, transaction: str) -> bool:
        found = self.transactions.find(transaction)
        assert found is not None
        return all(isinstance(each, Note) for each in found.seen.values())


@pytest.mark.parametrize("commits", [0, 3])
def test_a_transaction_reads_the_same_after_a_pause_of_any_length_below_its_limit(clock, commits):
    history = History()
    reader = history.transactions.begin()
    first = history.reads(reader, history.after(commits))
    assert not history.is_noted(reader)

    for pause in (61, 3599):
        clock.now += pause
        history.transactions.begin()
        assert history.is_noted(reader)
        assert history.transactions.snapshots_read(TABLE) == ({commits} if commits else set())

        assert history.reads(reader, history.after(commits + 2)) == first
        again = history.transactions.seen(reader, history.after(commits + 3))
        assert again is history.transactions.seen(reader, history.after(commits + 4))

    clock.now += 3601
    history.transactions.begin()
    assert history.transactions.find(reader) is None
    assert history.reads(reader, history.after(9)) == 9


def test_a_table_that_has_not_changed_is_read_as_it_is(clock):
    history = History()
    reader, state = history.transactions.begin(), history.after(3)
    history.transactions.seen(reader, state)
    clock.now += 100
    history.transactions.begin()

    assert history.transactions.seen(reader, state) is state


def test_an_altered_table_is_read_with_its_new_columns(clock):
    history = History()
    reader = history.transactions.begin()
    history.transactions.seen(reader, history.after(3))
    clock.now += 100
    history.transactions.begin()
    altered = history.after(4, properties={"comment": "another"})

    assert history.transactions.seen(reader, altered) is altered


def test_what_somebody_else_has_removed_is_a_conflict(clock):
    history = History()
    reader = history.transactions.begin()
    history.transactions.seen(reader, history.after(3))
    clock.now += 100
    history.transactions.begin()
    kept = [
        each
        for each in json.loads(metadata(5, history.uuid))["snapshots"]
        if each["snapshot-id"] != 3
    ]

    with pytest.raises(
        Conflict, match=r"what this transaction has read of table s\.t was removed meanwhile"
    ):
        history.transactions.seen(reader, history.after(5, snapshots=kept, snapshot_log=[]))


def test_the_longest_unused_are_forgotten_when_there_are_too_many(clock):
    history = History(LakeSettings(max_transactions=5))
    begun = []
    for _ in range(8):
        begun.append(history.transactions.begin())
        clock.now += 25

    assert [history.transactions.find(each) is not None for each in begun] == [False] * 3 + [
        True
    ] * 5


def test_those_with_changes_count_against_their_principal_until_they_are_settled_or_end():
    transactions = History().transactions
    keeper = LimitKeeper(Limits(max_transactions_per_principal=2))
    ada, bob = keeper.quotas("ada"), keeper.quotas("bob")
    begun = [
        found for _ in range(3) if (found := transactions.find(transactions.begin())) is not None
    ]
    for each in (begun[0], begun[0], begun[1]):
        transactions.writes(each, ada)

    with pytest.raises(
        LimitExceeded, match="you have 2 transactions with changes that wait for a commit"
    ):
        transactions.writes(begun[2], ada)
    transactions.writes(begun[2], bob)
    assert keeper.of_each("transactions") == {"ada": 2, "bob": 1}

    transactions.settled(begun[0])
    transactions.end(begun[1].id, TransactionState.ABORTED)
    transactions.end(begun[2].id, TransactionState.COMMITTED)
    assert keeper.of_each("transactions") == {}


def test_a_transaction_is_not_forgotten_while_a_statement_of_it_runs(clock):
    """Else what the statement changes would be published at once, and not with its block."""
    history = History(LakeSettings(max_transactions=2))
    transactions = history.transactions
    block = transactions.begin()
    statement = transactions.begin(statement_of=Context().with_transaction(block))
    ctx = Context().with_transaction(statement)
    found = transactions.find(block)
    assert found is not None
    found.collects = True
    transactions.writes(found, Quotas())
    with transactions.running(ctx), transactions.running(ctx):
        clock.now += 7200
        for _ in range(5):
            transactions.begin()
        assert transactions.collecting(ctx) is found
        assert transactions.abandoned() == []
    assert transactions.collecting(ctx) is found
    assert transactions.abandoned() == []  # its time begins now
    clock.now += 3601
    assert transactions.abandoned() == [found]
    transactions.end(block, TransactionState.ABORTED)
    transactions.begin()
    clock.now += 3601
    transactions.begin()
    assert transactions.find(block) is None
