"""What the fuzzed server serves: `cat` has a table that can be changed, `steady` one that
cannot.
"""

from __future__ import annotations

from tests.server.catalogs import ListedTable, catalog_of, numbers
from tests.server.mutated_server import COLUMNS

from sparkport.builder import CatalogBuilder

cat = CatalogBuilder("cat")
cat.schema("s1").table("t", COLUMNS)
steady = catalog_of(ListedTable("t", numbers()), name="steady")
