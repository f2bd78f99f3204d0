"""Signatures: what they depend on, and that servers of one secret agree."""

from __future__ import annotations

import hashlib
import hmac

from sparkport.wire.signing import Signer

SECRET = b"the secret of a group"


def test_a_signature_is_half_of_an_hmac_with_sha256() -> None:
    signed = b"ticket" + (3).to_bytes(8, "little") + b"abc" + (0).to_bytes(8, "little")
    expected = hmac.new(SECRET, signed, hashlib.sha256).digest()[:16]
    assert [Signer(SECRET).signature("ticket", b"abc", b"") for _ in range(2)] == [expected] * 2


def test_one_signature_does_not_change_the_next() -> None:
    signer = Signer(SECRET)
    first = signer.signature("ticket", b"abc")
    assert signer.signature("ticket", b"abd") != first
    assert signer.verify(first, "ticket", b"abc")
    assert Signer(SECRET).verify(first, "ticket", b"abc")
    assert not signer.verify(first, "descriptor", b"abc")
    assert not signer.verify(first, "ticket", b"ab", b"c")
    assert not Signer().verify(first, "ticket", b"abc")
