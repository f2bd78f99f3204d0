"""What list_schemas makes of a catalog: broken objects hide no others (T9, T11), work is cached."""

from __future__ import annotations

import hashlib
import logging
from types import MappingProxyType

import msgpack
import pyarrow as pa
import pyarrow.flight as flight
import pytest
import zstandard
from tests.server.catalogs import (
    ListedCatalog,
    ListedSchema,
    ListedTable,
    ScriptedTable,
    catalog_of,
    numbers,
)

from sparkport.catalog import (
    Access,
    CatalogVersion,
    Context,
    Identity,
    Privilege,
    VersionedCatalog,
)
from sparkport.errors import PermissionDenied
from sparkport.service import listing as listing_module
from sparkport.service import objects as objects_module
from sparkport.service.listing import Listing
from sparkport.service.registry import RegisteredCatalog
from sparkport.wire.signing import Signer

CTX = Context(catalog_name="cat")


@pytest.fixture
def listing():
    return Listing(Signer(b"secret"))


def registered(catalog):
    return RegisteredCatalog("cat", catalog)


def complaints(caplog):
    return sum(record.name.startswith("sparkport.service.") for record in caplog.records)


def unpack(answer):
    """The root of a listing, with the names of the objects in place of their bytes."""
    root = msgpack.unpackb(_decompress(answer))
    for schema in root["schemas"]:
        contents = schema["contents"]
        assert contents["sha256"] == hashlib.sha256(contents["serialized"]).hexdigest()  # T46
        infos = [
            flight.FlightInfo.deserialize(each)
            for each in msgpack.unpackb(_decompress(contents["serialized"]))
        ]
        schema["contents"] = [msgpack.unpackb(info.app_metadata)["name"] for info in infos]
    return root


def names(answer):
    return {schema["name"]: schema["contents"] for schema in unpack(answer)["schemas"]}


def _decompress(pair):
    length, frame = msgpack.unpackb(pair)
    return zstandard.ZstdDecompressor().decompress(frame, max_output_size=length)


class Counted:
    """Counts the calls of a function, which works as before."""

    def __init__(self, monkeypatch, module, name):
        self.calls = 0
        original = getattr(module, name)

        def counting(*arguments, **named):
            self.calls += 1
            return original(*arguments, **named)

        monkeypatch.setattr(module, name, counting)


@pytest.fixture
def work(monkeypatch):
    """The costly steps of a listing."""
    steps = [
        (listing_module, "table_info"),
        (listing_module, "encode_contents"),
        (objects_module, "refuse_unsupported"),
    ]
    return {name: Counted(monkeypatch, module, name) for module, name in steps}


def large_catalog(tables=1000, columns=50):
    def table(number):
        return ScriptedTable(
            f"t{number}", pa.schema([(f"c{index}", pa.int64()) for index in range(columns)])
        )

    return catalog_of(*(table(number) for number in range(tables)))


def test_the_second_listing_of_1000_tables_makes_nothing_anew(listing, work):
    catalog = registered(large_catalog())

    first = listing.schema_list(CTX, catalog)
    after_first = {name: step.calls for name, step in work.items()}
    second = listing.schema_list(CTX, catalog)

    assert after_first["table_info"] == 1000
    assert after_first["refuse_unsupported"] == 1000
    assert {name: step.calls for name, step in work.items()} == after_first
    assert first == second
    assert len(names(second)["s"]) == 1000


def test_a_changed_table_is_the_only_one_that_is_made_anew(listing, work):
    contents = large_catalog(20)
    catalog = registered(contents)
    listing.schema_list(CTX, catalog)
    before = {name: step.calls for name, step in work.items()}

    contents.contents[0].contents[7] = ListedTable("t7", numbers())
    changed = listing.schema_list(CTX, catalog)

    assert work["table_info"].calls == before["table_info"] + 1
    assert work["encode_contents"].calls == before["encode_contents"] + 1
    assert len(names(changed)["s"]) == 20


@pytest.mark.parametrize(
    "change",
    [
        lambda tables: tables.pop(),
        lambda tables: tables.append(ListedTable("new", numbers())),
        lambda tables: tables.reverse(),
        lambda tables: tables.clear(),
    ],
    ids=["dropped", "added", "reordered", "emptied"],
)
def test_a_listing_shows_what_there_is_now(listing, change):
    contents = catalog_of(*(ListedTable(f"t{number}", numbers()) for number in range(3)))
    catalog = registered(contents)
    listing.schema_list(CTX, catalog)

    tables = contents.contents[0].contents
    change(tables)

    assert names(listing.schema_list(CTX, catalog))["s"] == [table.name for table in tables]


def test_a_new_comment_is_shown(listing):
    table = ListedTable("t", numbers(), comment="old")
    catalog = registered(catalog_of(table))
    before = listing.schema_list(CTX, catalog)
    table._comment = "new"

    assert listing.schema_list(CTX, catalog) != before


def test_each_caller_sees_what_the_catalog_shows_to_them(listing):
    class Private(ListedSchema):
        def tables(self, ctx):
            return [
                table
                for table in self.contents
                if ctx.principal == "owner" or table.name != "secret"
            ]

    contents = ListedCatalog(
        "", [Private("s", [ListedTable("secret", numbers()), ListedTable("open", numbers())])]
    )
    catalog = registered(contents)
    owner = Context(catalog_name="cat", principal="owner")

    for _ in range(2):
        assert names(listing.schema_list(owner, catalog)) == {"s": ["secret", "open"]}
        assert names(listing.schema_list(CTX, catalog)) == {"s": ["open"]}


def test_what_is_remembered_for_many_callers_is_bounded(listing, monkeypatch):
    monkeypatch.setattr(listing_module, "_MOST_OBJECTS", 25)
    catalog = registered(
        catalog_of(*(ListedTable(f"t{number}", numbers()) for number in range(10)))
    )
    callers = [
        Context(catalog_name="cat", identity=Identity(name)) for name in ("ann", "bob", "eve")
    ]

    answers = [listing.schema_list(ctx, catalog) for ctx in callers]

    assert len(set(answers)) == 3, "what is handed out says to whom"
    assert len(listing._remembered) == 2
    assert listing._objects == 20
    assert [listing.schema_list(ctx, catalog) for ctx in callers] == answers


def test_a_catalog_that_is_forgotten_leaves_nothing_behind(listing):
    catalog, other = registered(large_catalog(5)), registered(large_catalog(5))
    listing.schema_list(CTX, catalog)
    listing.schema_list(CTX, other)

    listing.forget(catalog)

    assert {key[0] for key in listing._remembered} == {other}


def test_schemas_are_described_and_the_first_is_the_default(listing):
    class Described(ListedSchema):
        comment = "What we sold"
        tags = MappingProxyType({"owner": "sales"})

    class Versioned(ListedCatalog, VersionedCatalog):
        def version(self, ctx):
            return CatalogVersion(42, fixed=True)

    root = unpack(
        listing.schema_list(CTX, registered(Versioned("", [Described("a"), ListedSchema("b")])))
    )

    described = {
        "name": "a",
        "description": "What we sold",
        "tags": {"owner": "sales"},
        "is_default": True,
    }
    plain = {"name": "b", "description": "", "tags": {}, "is_default": False}
    assert root["schemas"] == [{**described, "contents": []}, {**plain, "contents": []}]
    assert root["version_info"] == {"catalog_version": 42, "is_fixed": True}
    assert root["contents"] == {"sha256": "", "url": None, "serialized": None}


# -- broken objects


class Raising:
    """A property that raises."""

    def __init__(self, error=None):
        self.error = error or RuntimeError("broken")

    def __get__(self, instance, owner):
        raise self.error


def broken_table(attribute, value=None):
    """A table with one attribute that raises, or has this value."""
    return type("Broken", (ListedTable,), {attribute: Raising() if value is None else value})(
        "bad", numbers()
    )


def broken_schema(attribute, value):
    return type("Broken", (ListedSchema,), {attribute: value})("bad", [ListedTable("t", numbers())])


@pytest.mark.parametrize(
    "bad",
    [
        broken_table("arrow_schema"),
        broken_table("comment"),
        broken_table("name"),
        broken_table("arrow_schema", Raising(PermissionDenied("not for you"))),
        broken_table("arrow_schema", "no schema"),
        broken_table("comment", "half of a pair: \ud83e"),
        broken_table("comment", 42),
        broken_table("name", ""),
        broken_table("name", "\ud83e"),
        broken_table("name", 42),
        "no table at all",
        None,
    ],
    ids=[
        "arrow_schema raises",
        "comment raises",
        "name raises",
        "refused by the catalog",
        "arrow_schema of another type",
        "comment not text",
        "comment a number",
        "no name",
        "name not text",
        "name a number",
        "a string",
        "None",
    ],
)
def test_a_broken_table_does_not_hide_the_others(listing, caplog, bad):
    good = [ListedTable("before", numbers()), ListedTable("after", numbers())]
    catalog = registered(catalog_of(good[0], bad, good[1]))

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert names(listing.schema_list(CTX, catalog)) == {"s": ["before", "after"]}
        assert len(list(listing.flight_infos(CTX, catalog, catalog.catalog.schemas(CTX)[0]))) == 2

    assert complaints(caplog) == 1, "it is said once, not at every ATTACH"


def _raise(*_):
    raise RuntimeError("broken")


@pytest.mark.parametrize(
    "bad",
    [
        broken_schema("name", Raising()),
        broken_schema("comment", Raising()),
        broken_schema("tags", Raising()),
        broken_schema("tables", _raise),
        broken_schema("tables", lambda *_: None),
        broken_schema("name", ""),
        broken_schema("name", "\ud83e"),
        broken_schema("comment", "\ud83e"),
        broken_schema("comment", None),
        broken_schema("tags", {"owner": 42}),
        broken_schema("tags", None),
        None,
    ],
    ids=[
        "name raises",
        "comment raises",
        "tags raise",
        "tables raise",
        "tables are None",
        "no name",
        "name not text",
        "comment not text",
        "comment is None",
        "tag not text",
        "tags are None",
        "None",
    ],
)
def test_a_broken_schema_does_not_hide_the_others(listing, caplog, bad):
    good = [ListedSchema("before", [ListedTable("t", numbers())]), ListedSchema("after")]
    catalog = registered(ListedCatalog("", [good[0], bad, good[1]]))

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert names(listing.schema_list(CTX, catalog)) == {"before": ["t"], "after": []}

    assert complaints(caplog) == 1


def test_of_tables_with_the_same_name_the_first_is_listed(listing, caplog):
    tables = [
        ListedTable("t", numbers(1)),
        ListedTable("t", numbers(2)),
        ListedTable("T", numbers(3)),
    ]

    assert names(listing.schema_list(CTX, registered(catalog_of(*tables)))) == {"s": ["t"]}
    assert "differs only in case" in caplog.text


def test_of_schemas_with_the_same_name_the_first_is_listed(listing):
    """Two schemas of one name would make the client refuse the whole catalog (T45)."""
    schemas = [
        ListedSchema("a", [ListedTable("t", numbers())]),
        ListedSchema("a"),
        ListedSchema("A"),
        ListedSchema("b"),
    ]

    assert names(listing.schema_list(CTX, registered(ListedCatalog("", schemas)))) == {
        "a": ["t"],
        "b": [],
    }


def test_a_catalog_that_fails_as_a_whole_says_so(listing):
    """The client would believe an answer without schemas until it attaches again (T11)."""

    class Failing(ListedCatalog):
        def schemas(self, ctx):
            raise PermissionDenied("not for you")

    with pytest.raises(PermissionDenied):
        listing.schema_list(CTX, registered(Failing()))


class Sized(ListedTable):
    def __init__(self, name, size):
        super().__init__(name, numbers(3))
        self.size = size

    def estimated_rows(self, ctx, options):
        if isinstance(self.size, Exception):
            raise self.size
        return self.size


def sizes(contents):
    infos = [
        flight.FlightInfo.deserialize(each)
        for each in msgpack.unpackb(_decompress(contents.serialized))
    ]
    return {msgpack.unpackb(info.app_metadata)["name"]: info.total_records for info in infos}


def test_sizes_are_told_as_far_as_they_are_known(listing):
    tables = [Sized("a", 7), Sized("b", None), Sized("c", RuntimeError("no")), Sized("d", -5)]
    schema = ListedSchema("s", tables)
    catalog = registered(ListedCatalog("cat", [schema]))

    assert sizes(listing.contents(CTX, catalog, schema)) == {"a": 7, "b": -1, "c": -1, "d": -1}

    tables[0].size = 8
    assert sizes(listing.contents(CTX, catalog, schema))["a"] == 8


def test_sizes_are_told_to_those_who_may_read(listing):
    class Lists(Access):
        def may(self, privilege, schema="", name=""):
            return privilege is Privilege.LIST

    schema = ListedSchema("s", [Sized("a", 7)])
    ctx = Context(catalog_name="cat", access=Lists())

    assert sizes(listing.contents(ctx, registered(ListedCatalog("cat", [schema])), schema)) == {
        "a": -1
    }
