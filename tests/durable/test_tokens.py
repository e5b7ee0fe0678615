"""Tokens of deferreds: nobody makes one up, and comparing one takes the same time whatever is wrong."""

from __future__ import annotations

import base64
import hmac
import secrets

import pytest

from redis_cluster_kit import ShardId, TokenRefusedError
from redis_cluster_kit.durable import DeferredTokens, tokens
from redis_cluster_kit.storage import DeferredPlace

PLACE = DeferredPlace("e:order:17", "m-1", "approval", ShardId("default", 3))


def _flipped(token: str, bit: int) -> str:
    """Return the token with one bit of what it says changed."""
    named, _, signed = token.partition(".")
    data = bytearray(base64.urlsafe_b64decode(named + "=" * (-len(named) % 4)))
    data += base64.urlsafe_b64decode(signed + "=" * (-len(signed) % 4))
    length = len(data) - 24
    data[bit // 8] ^= 1 << bit % 8
    return ".".join(
        base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (data[:length], data[length:])
    )


def test_a_token_names_its_deferred_and_is_always_the_same() -> None:
    made = DeferredTokens(b"s" * 32)
    assert made.read(made.make(PLACE)) == PLACE
    assert made.make(PLACE) == DeferredTokens(b"s" * 32).make(PLACE)
    assert "s" * 8 not in repr(made)


def test_no_bit_of_it_can_be_changed() -> None:
    made = DeferredTokens(secrets.token_bytes(32))
    token = made.make(PLACE)
    named, _, signed = token.partition(".")
    bits = 8 * (len(named) * 3 // 4 + len(signed) * 3 // 4)
    for bit in range(bits):
        with pytest.raises(TokenRefusedError):
            made.read(_flipped(token, bit))


def test_that_of_another_cluster_is_refused() -> None:
    ours, theirs = (DeferredTokens(secrets.token_bytes(32)) for _ in range(2))
    with pytest.raises(TokenRefusedError):
        ours.read(theirs.make(PLACE))


def test_it_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    really = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return really(one, other)

    monkeypatch.setattr(tokens.hmac, "compare_digest", compare)
    made = DeferredTokens(b"s" * 32)
    token = made.make(PLACE)
    made.read(token)
    with pytest.raises(TokenRefusedError):
        made.read(_flipped(token, 0))
    assert [one == other for one, other in compared] == [True, False]
    assert {len(digest) for pair in compared for digest in pair} == {24}
