"""The suite that an implementer runs on a catalog: its interfaces, the catalog served, and changed
where it can be.

    from sparkport.testing import CatalogContract

    class TestMyCatalog(CatalogContract):
        def make_catalog(self):
            return MyCatalog(...)

Every test gets a catalog of its own, so that tests may change it. A catalog that is dear to make
can override the fixture `catalog` with a wider scope, as long as `make_catalog` is not needed to be
fresh.
"""

from __future__ import annotations

from sparkport.testing.contract.interfaces import InterfaceContract
from sparkport.testing.contract.served import ServedContract
from sparkport.testing.contract.statements import StatementContract
from sparkport.testing.contract.structure import StructureContract
from sparkport.testing.contract.writes import WriteContract

__all__ = ["CatalogContract"]


class CatalogContract(
    InterfaceContract, ServedContract, WriteContract, StructureContract, StatementContract
):
    """Subclass it with a name that pytest collects, and give it `make_catalog`.

    Tests of what the catalog does not claim to be able to do (`isinstance`) are skipped, and say
    so.
    """
