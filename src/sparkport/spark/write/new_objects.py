"""The tables and views that a transaction makes, in catalogs that cannot publish all at once.

Strategy: new tables come first, as nobody can have used them: if the rest of the transaction cannot
be published, they are removed again. Then come the changes of tables that others use, and those
that are replaced, at once where the catalog `swaps_together`; at last the views. If it fails
between, the error says what is published. A server that is killed between cannot say it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.outcomes import OutcomeUnknown
from sparkport.spark.lake.transaction import Transaction
from sparkport.spark.lake.unpublished import Unpublished

__all__ = ["at_once", "created_first", "publish_each", "settle"]


def at_once(lake: Lake, transaction: Transaction) -> list[Unpublished]:
    """What a transaction makes that its catalog publishes together with its changes of tables."""
    made = list(transaction.made.values())
    if lake.catalog.creates_together:
        return made
    replaced = [each for each in made if not (each.is_new or each.is_view)]
    is_one = len(replaced) + len(transaction.pending) == 1
    return replaced if lake.catalog.swaps_together and not is_one else []


@contextmanager
def created_first(
    lake: Lake, transaction: Transaction, published: list[Identifier]
) -> Iterator[None]:
    """Publish the new tables of a transaction; if then nothing else is published, remove them.

    Does nothing where the catalog `creates_together`.
    """
    new = [] if lake.catalog.creates_together else list(transaction.made.values())
    new = [each for each in new if each.is_new and not each.is_view]
    try:
        publish_each(lake, transaction, new, published)
        yield
    except BaseException:
        made = [each for each in new if each.identifier in published]
        if made and {*published} == {each.identifier for each in made}:
            for each in made:
                lake.attempt(f"removing {each.identifier} again", each.withdraw)
                lake.changed(each.identifier)
                if lake.entry(each.identifier) is None:
                    published.remove(each.identifier)
                    transaction.made[each.identifier] = each
        raise


def publish_each(
    lake: Lake,
    transaction: Transaction,
    objects: Sequence[Unpublished],
    published: list[Identifier],
) -> None:
    """Publish objects one after the other, tables before views.

    It ends at the first that another writer has changed meanwhile, and may be called again. Raises:
    AlreadyExists, Conflict, NotFound; OutcomeUnknown.
    """
    for each in sorted(objects, key=lambda each: each.is_view):
        try:
            if not each.publish():
                return
        except OutcomeUnknown:
            transaction.made.pop(each.identifier).leave()
            raise
        published.append(each.identifier)
        settle(lake, transaction, each)


def settle(lake: Lake, transaction: Transaction, made: Unpublished) -> None:
    """Clean up after an object was published. Never raises."""
    transaction.made.pop(made.identifier, None)
    made.settle()
    lake.changed()
    transaction.seen.pop(made.identifier, None)
    if not made.is_view:
        lake.attempt(
            "what a transaction reads after it was published",
            lambda: lake.transactions.show(transaction.id, lake.current(made.identifier)),
        )
