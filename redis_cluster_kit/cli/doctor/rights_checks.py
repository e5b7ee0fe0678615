"""Tries what this user must be allowed to do in Redis, by doing it on a key that nobody uses.

Commands of scripts are tried inside one script, which leaves nothing behind; those the kit sends as they are
go to a key that does not exist, where they have no effect.
"""

from __future__ import annotations

from redis_cluster_kit.errors import PersistenceFailedError
from redis_cluster_kit.redis_access import Keyspace, Lanes, Script

from .finding import Finding, ok, problem

RIGHTS = Script.load("doctor/rights")
_CHECK = "rights"
_ENOUGH = "+@read +@write +@stream +@scripting +@connection +time +info +config|get"
"""With `~rck:*`; a cluster URL also needs +cluster|slots, a sentinel URL +role."""


async def check_rights(lanes: Lanes, keyspace: Keyspace) -> Finding:
    """Return whether this user may do all that the kit does."""
    where = str(lanes.url)
    try:
        outcome = await RIGHTS(lanes, keyspace.home_slot, probe=keyspace.probe)
    except PersistenceFailedError as error:
        if error.is_retryable:
            raise
        advice = f"allow them, and the keys: ACL SETUSER … ~rck:{{{keyspace.namespace}:* {_ENOUGH}"
        return problem(_CHECK, where, f"scripts cannot be run: {error.detail}", advice)
    refused = [text.decode(errors="replace") for text in outcome.fields[0]]
    refused += await _refused_outside(lanes, keyspace)
    if refused:
        advice = f"allow them; this is enough: ACL SETUSER … ~rck:* {_ENOUGH}"
        return problem(_CHECK, where, "; ".join(refused), advice)
    return ok(_CHECK, where, "scripts and commands may be run")


def plain_commands(probe: str) -> tuple[tuple[str | int, ...], ...]:
    """Return what the kit sends outside scripts, so that it does nothing where `probe` does not exist."""
    return (
        ("PING",),
        ("TIME",),
        ("GET", probe),
        ("DEL", probe),
        ("UNLINK", probe),
        ("HGET", probe, "f"),
        ("HGETALL", probe),
        ("HKEYS", probe),
        ("HEXISTS", probe, "f"),
        ("HLEN", probe),
        ("HSCAN", probe, 0),
        ("HDEL", probe, "f"),
        ("SSCAN", probe, 0),
        ("SCARD", probe),
        ("ZCARD", probe),
        ("ZRANGE", probe, 0, -1),
        ("XLEN", probe),
        ("XRANGE", probe, "-", "+"),
        ("XADD", probe, "NOMKSTREAM", "*", "k", "v"),
        ("XREAD", "COUNT", 1, "STREAMS", probe, "0"),
    )


async def _refused_outside(lanes: Lanes, keyspace: Keyspace) -> list[str]:
    refused: list[str] = []
    for words in plain_commands(keyspace.probe):
        try:
            await lanes.call(keyspace.home_slot, *words, repeat=True)
        except PersistenceFailedError as error:
            if error.is_retryable:
                raise
            refused.append(f"{words[0]}: {error.detail}")
    return refused
