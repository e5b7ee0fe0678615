"""Tokens of deferreds: text that names one and cannot be guessed; every pod checks them by itself.

`<what it names>.<keyed digest>`, both base64url. The key is the cluster's secret, which is never shown.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from redis_cluster_kit.codec import decode, encode
from redis_cluster_kit.errors import MalformedMessageError, TokenRefusedError
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.storage import DeferredPlace

_FORM = 1
_LONGEST = 4096
_DIGEST = 24


class DeferredTokens:
    """Makes and reads the tokens of one cluster."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def __repr__(self) -> str:
        return "DeferredTokens(…)"

    def make(self, place: DeferredPlace) -> str:
        """Return the token of a deferred: the same each time."""
        shard = place.shard
        names = encode((_FORM, shard.group, shard.number, place.subject, place.execution, place.name))
        return f"{_text(names)}.{_text(self._digest(names))}"

    def read(self, token: str) -> DeferredPlace:
        """Return what a token names; `TokenRefusedError` if this cluster did not make it."""
        names = self._checked(token)
        try:
            form, group, number, subject, execution, name = decode(names, tuple[int, str, int, str, str, str])
        except MalformedMessageError as error:
            raise TokenRefusedError(detail="it was made by another release", cause=error) from error
        if form != _FORM:
            raise TokenRefusedError(detail="it was made by another release")
        return DeferredPlace(subject, execution, name, ShardId(group, number))

    def _checked(self, token: str) -> bytes:
        if not isinstance(token, str) or len(token) > _LONGEST:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TokenRefusedError
        named, _, signed = token.partition(".")
        try:
            names, digest = _bytes(named), _bytes(signed)
        except (binascii.Error, ValueError):
            raise TokenRefusedError from None
        if f"{_text(names)}.{_text(digest)}" != token:  # base64 has spare bits: one deferred, one token
            raise TokenRefusedError
        if not hmac.compare_digest(digest, self._digest(names)):
            raise TokenRefusedError
        return names

    def _digest(self, names: bytes) -> bytes:
        return hashlib.blake2b(names, key=self._secret, digest_size=_DIGEST, person=b"rck:deferred").digest()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
