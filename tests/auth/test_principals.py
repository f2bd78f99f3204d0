"""Who is meant by a name, where people choose their own."""

from __future__ import annotations

from sparkport.auth import Grant, Policy, RowFilter
from sparkport.catalog import Identity, Privilege

IMPOSTOR = Identity("group:admins")
MEMBER = Identity("ada", frozenset({"admins"}))


def test_who_is_called_like_a_group_is_not_in_it():
    policy = Policy([Grant(("group:admins",), "lake", (Privilege.READ,))], admins=["group:admins"])

    assert policy.access(MEMBER, "lake").may(Privilege.READ, "s", "t")
    assert policy.is_admin(MEMBER)
    assert not policy.access(IMPOSTOR, "lake").may(Privilege.LIST, "s", "t")
    assert not policy.is_admin(IMPOSTOR)


def test_nor_are_its_exceptions_for_them():
    policy = Policy(row_filters=[RowFilter("lake.s.t", "false", but=("group:admins",))])

    assert policy.access(MEMBER, "lake").restrictions("s", "t") is None
    assert policy.access(IMPOSTOR, "lake").restrictions("s", "t") is not None
