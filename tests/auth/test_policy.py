"""The access that a policy makes of grants, row filters and masks."""

from __future__ import annotations

import pytest

from sparkport.auth import Grant, Mask, Policy, RowFilter
from sparkport.catalog import Identity, Privilege

LIST, READ, WRITE, ALTER = Privilege.LIST, Privilege.READ, Privilege.WRITE, Privilege.ALTER
ANN, BOB = Identity("ann", frozenset({"ops"})), Identity("bob")


@pytest.mark.parametrize(
    ("on", "path", "allowed"),
    [
        ("lake", (), True),
        ("lake", ("s",), True),
        ("lake", ("s", "t"), True),
        ("lake.s", (), False),
        ("lake.s", ("s",), True),
        ("lake.s", ("s", "t"), True),
        ("lake.s", ("s2", "t"), False),
        ("lake.s", ("s.nested", "t"), True),
        ("lake.s.t", ("s", "t"), True),
        ("lake.s.t", ("s", "t2"), False),
        ("lake.s.t", ("s",), False),
        ("LAKE.S.T", ("s", "t"), True),
        ("lake.*.t", ("anything", "t"), True),
        ("lake.s.pub_*", ("s", "pub_a"), True),
        ("lake.s.pub_*", ("s", "private"), False),
        ("*", ("s", "t"), True),
        ("other", ("s", "t"), False),
        ("lak", ("s", "t"), False),
        ("lake.s.t.more", ("s", "t"), False),
        ("la+e", ("s", "t"), False),
        ("lake.*.t", ("s.nested", "t"), False),
        ("lake.**.t", ("s", "t"), True),
        ("lake.**.t", ("s.nested", "t"), True),
        ("lake.**.t", ("a.b.c", "t"), True),
        ("lake.**.t", ("t",), True),
        ("lake.**.t", ("t", "anything"), True),
        ("lake.**.t", ("s", "t2"), False),
        ("lake.**.t", ("s",), False),
        ("lake.**.t", (), False),
        ("LAKE.**.T", ("a.b", "t"), True),
        ("lake.s.**.t", ("s", "t"), True),
        ("lake.s.**.t", ("s.nested", "t"), True),
        ("lake.s.**.t", ("other", "t"), False),
        ("lake.*.**.t", ("s.nested", "t"), True),
        ("lake.*.**.t", ("t",), False),
        ("lake.**.t*", ("a.b", "t2"), True),
        ("lake.**.a.**.t", ("x.a.y", "t"), True),
        ("lake.**.a.**.t", ("x.y", "t"), False),
        ("lake.**", (), True),
        ("lake.**", ("a.b", "t"), True),
        ("**", ("a.b", "t"), True),
        ("**.t", ("a.b", "t"), True),
        ("other.**.t", ("a", "t"), False),
        ("lake.s**.t", ("s2", "t"), True),
        ("lake.s**.t", ("s2.nested", "t"), False),
    ],
)
def test_a_grant_holds_for_what_is_in_its_path(
    on: str, path: tuple[str, ...], allowed: bool
) -> None:
    access = Policy([Grant(("bob",), on, (READ,))]).access(BOB, "lake")

    assert access.may(READ, *path) is allowed
    assert access.may(LIST, *path) is allowed, "whoever may do something with an object sees it"
    assert not access.may(WRITE, *path)


def test_what_is_granted_further_down_shows_what_it_is_in() -> None:
    access = Policy([Grant(("bob",), "lake.s.t", (LIST,))]).access(BOB, "lake")

    assert access.sees_catalog()
    assert access.sees_schema("s")
    assert not access.sees_schema("other")
    assert not Policy([Grant(("bob",), "lake.s.t", (LIST,))]).access(BOB, "sea").sees_catalog()


@pytest.mark.parametrize(
    ("on", "schema", "seen"),
    [
        ("lake.**.t", "s", True),
        ("lake.**.t", "a.b", True),
        ("lake.a.**.t", "a.b", True),
        ("lake.a.**.t", "b", False),
        ("lake.a.**", "a", True),
        ("lake.**.a.t", "x", True),
        ("**", "x", True),
    ],
)
def test_two_asterisks_show_every_schema_in_which_something_might_be_meant(
    on: str, schema: str, seen: bool
) -> None:
    access = Policy([Grant(("bob",), on, (LIST,))]).access(BOB, "lake")

    assert access.sees_catalog()
    assert access.sees_schema(schema) is seen


def test_two_asterisks_cover_nested_schemas_where_one_does_not() -> None:
    policy = Policy(row_filters=[RowFilter("lake.**.t", "a > 1")], masks=[Mask("lake.**.t", "b")])
    access = policy.access(BOB, "lake")

    for schema in ("s", "s.nested", "a.b.c"):
        found = access.restrictions(schema, "t")
        assert found is not None
        assert (found.row_filters, dict(found.masks)) == (("a > 1",), {"b": "NULL"})
        assert access.restrictions(schema, "u") is None


@pytest.mark.parametrize(
    ("to", "who", "allowed"),
    [
        ("ann", ANN, True),
        ("ann", BOB, False),
        ("group:ops", ANN, True),
        ("group:ops", BOB, False),
        ("ops", ANN, False),
        ("*", BOB, True),
        ("*", None, True),
        ("ann", None, False),
        ("group:ann", ANN, False),
    ],
)
def test_a_grant_is_for_a_name_a_group_or_everybody(
    to: str, who: Identity | None, allowed: bool
) -> None:
    assert (
        Policy([Grant((to,), "lake", (ALTER,))]).access(who, "lake").may(ALTER, "s", "t") is allowed
    )


def test_without_grants_everything_is_allowed_and_with_an_empty_list_nothing() -> None:
    assert Policy().access(BOB, "lake").may(ALTER, "s")
    assert not Policy([]).access(BOB, "lake").sees_catalog()


def test_rules_are_for_whom_they_are_said_to_be_for() -> None:
    policy = Policy(
        row_filters=[
            RowFilter("lake.s.t", "a = 1", but=("group:ops",)),
            RowFilter("lake.s", "b = $region", ("bob",)),
        ],
        masks=[Mask("lake.s.t", "c"), Mask("lake.s.t", "c", "'first wins'"), Mask("sea", "d")],
    )
    bob = Identity("bob", attributes={"region": "north"})

    found = policy.access(bob, "lake").restrictions("s", "t")
    assert found is not None
    assert found.row_filters == ("a = 1", "b = $region")
    assert dict(found.masks) == {"c": "NULL"}
    assert found.values == {"region": "north", "principal": "bob", "groups": ()}
    other = policy.access(bob, "lake").restrictions("s", "other")
    assert other is not None
    assert other.row_filters == ("b = $region",)
    ann = policy.access(ANN, "lake").restrictions("s", "t")
    assert ann is not None
    assert ann.row_filters == ()
    assert policy.access(ANN, "lake").restrictions("elsewhere", "t") is None


def test_an_attribute_cannot_pose_as_the_name() -> None:
    policy = Policy(row_filters=[RowFilter("lake", "owner = $principal")])
    found = policy.access(
        Identity("bob", attributes={"principal": "ann", "groups": ("ops",)}), "lake"
    )

    restrictions = found.restrictions("s", "t")
    assert restrictions is not None
    assert restrictions.values == {"principal": "bob", "groups": ()}


def test_callers_who_differ_in_anything_are_told_apart() -> None:
    policy = Policy([Grant(("group:ops",), "lake", (READ,))], [RowFilter("lake", "r = $r")])

    assert not policy.access(Identity("x"), "lake").may(READ)
    assert policy.access(Identity("x", frozenset({"ops"})), "lake").may(READ)
    for value in ("1", "2"):
        found = policy.access(Identity("x", attributes={"r": value}), "lake").restrictions("s", "t")
        assert found is not None
        assert found.values["r"] == value


def test_administrators_are_named() -> None:
    policy = Policy(admins=("group:ops",))

    assert policy.is_admin(ANN)
    assert not policy.is_admin(BOB)
    assert not policy.is_admin(None)
