"""One runner's health: whether it can do its part, and if not, why. Reads only; decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.errors import PersistenceFailedError
from redis_cluster_kit.ownership import LeaseNodes, Ownership
from redis_cluster_kit.runtime import SingletonHealth

_ANSWER_WITHIN = 1.0


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """One store: whether it answered just now, how fast, and what it said if it did not."""

    ok: bool
    seconds: float = 0.0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ShardHealth:
    """The shards of this runner: owned, and missing although placement gives them to it."""

    owned: int
    missing: int
    draining: bool


@dataclass(frozen=True, slots=True)
class HealthReport:
    """`ready`: traffic may come. `live`: no restart is needed; it never depends on a store."""

    ready: bool
    live: bool
    reasons: tuple[str, ...]
    """Why it is not ready, and what else is wrong; empty when all is well."""
    runner_id: str
    shards: ShardHealth
    redis: StoreHealth
    database: StoreHealth | None
    singletons: dict[str, str]
    """Those led by this runner: `ok`, or what is wrong. A stale or overdue one fails readiness at once."""


async def report(
    runner_id: str,
    *,
    ownership: Ownership | None,
    hosting: bool,
    leases: LeaseNodes,
    ping_redis: Callable[[], Awaitable[object]],
    ping_database: Callable[[float], Awaitable[object]] | None,
    troubles: Iterable[str],
    remarks: Iterable[str],
    is_live: bool,
    singletons: Mapping[str, SingletonHealth],
) -> HealthReport:
    """Ask the stores and put together what is known. `troubles` make it unready, `remarks` do not."""
    redis, database = await asyncio.gather(
        _asked(ping_redis),
        _asked(None if ping_database is None else lambda: ping_database(_ANSWER_WITHIN)),
    )
    assert redis is not None
    reasons = [text for text in troubles if text]
    if not redis.ok:
        reasons.append(f"redis: {redis.detail}")
    if database is not None and not database.ok:
        reasons.append(f"database: {database.detail}")
    if hosting and (ownership is None or not ownership.is_placed):
        reasons.append("the shards of this runner are not known yet")
    shards = ShardHealth(0, 0, draining=False)
    if ownership is not None:
        shards = ShardHealth(len(ownership.owned), len(ownership.missing), ownership.is_draining)
        reasons += _shard_reasons(ownership, leases)
    reasons += [f"singleton {name}: {how.text}" for name, how in singletons.items() if not how.is_ready]
    return HealthReport(
        ready=not reasons,
        live=is_live,
        reasons=(*reasons, *remarks),
        runner_id=runner_id,
        shards=shards,
        redis=redis,
        database=database,
        singletons={name: how.text for name, how in singletons.items()},
    )


def _shard_reasons(ownership: Ownership, leases: LeaseNodes) -> list[str]:
    reasons: list[str] = []
    if ownership.is_draining:
        reasons.append("draining")
    if not leases.has_majority:
        reasons.append(leases.too_few().detail)
    if ownership.missing:
        reasons.append(f"{len(ownership.missing)} shards of this runner are not owned yet")
    reasons += [f"{name}: {text}" for name, text in sorted(ownership.trouble.items())]
    return reasons


async def _asked(ping: Callable[[], Awaitable[object]] | None) -> StoreHealth | None:
    if ping is None:
        return None
    started = Clock.boot()
    try:
        await ping()
    except PersistenceFailedError as error:
        return StoreHealth(ok=False, seconds=Clock.boot() - started, detail=error.detail or str(error))
    return StoreHealth(ok=True, seconds=Clock.boot() - started)
