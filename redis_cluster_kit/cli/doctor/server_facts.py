"""Asks each Redis server of a deployment for what `server_checks` judges; a refusal is a fact too."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.errors import PersistenceFailedError
from redis_cluster_kit.redis_access import Lanes

_PINGS = 20
_SETTINGS = (
    "maxmemory-policy",
    "appendonly",
    "appendfsync",
    "stream-node-max-bytes",
    "min-replicas-to-write",
)


@dataclass(slots=True)
class ServerFacts:
    """What one server said."""

    where: str
    info: dict[str, str] = field(default_factory=dict[str, str])
    settings: dict[str, str] = field(default_factory=dict[str, str])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    """Commands the server refused, with what it said."""
    skew: float = 0.0
    """This host's clock minus the server's, in seconds, as far as the round trip lets one know."""
    latencies: list[float] = field(default_factory=list[float])

    @property
    def median(self) -> float:
        """The median time of an answer, in seconds."""
        return sorted(self.latencies)[len(self.latencies) // 2]

    def setting(self, name: str) -> str | None:
        """Return a setting; INFO knows some of them where CONFIG GET is not allowed."""
        found = self.settings.get(name)
        if found is None and name == "maxmemory-policy":
            return self.info.get("maxmemory_policy")
        if found is None and name == "appendonly" and "aof_enabled" in self.info:
            return "yes" if self.info["aof_enabled"] == "1" else "no"
        return found


async def server_facts(lanes: Lanes) -> list[ServerFacts]:
    """Ask every server that holds slots; `PersistenceFailedError` if one cannot be reached."""
    facts: dict[str, ServerFacts] = {}
    for _ in range(_PINGS):
        await _time(lanes, facts)
    for where, reply in (await lanes.call_every_master("INFO")).items():
        if isinstance(reply, PersistenceFailedError):
            facts[where].refused["INFO"] = reply.detail
        else:
            facts[where].info = _parsed(reply.decode(errors="replace"))
    for name in _SETTINGS:
        for where, reply in (await lanes.call_every_master("CONFIG", "GET", name)).items():
            if isinstance(reply, PersistenceFailedError):
                facts[where].refused["CONFIG GET"] = reply.detail
            elif reply:
                facts[where].settings[name] = reply[1].decode()
    return list(facts.values())


async def _time(lanes: Lanes, facts: dict[str, ServerFacts]) -> None:
    """One round of TIME, to all servers at once: the quickest answer tells the skew best."""
    started, wall = Clock.boot(), time.time()
    for where, reply in (await lanes.call_every_master("TIME")).items():
        took = Clock.boot() - started
        fact = facts.setdefault(where, ServerFacts(where))
        if isinstance(reply, PersistenceFailedError):
            fact.refused["TIME"] = reply.detail
        elif not fact.latencies or took < min(fact.latencies):
            server = int(reply[0]) + int(reply[1]) / 1e6
            off = wall + took / 2 - server
            fact.skew = 0.0 if abs(off) <= took / 2 else off
        fact.latencies.append(took)


def _parsed(info: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in info.splitlines() if not line.startswith("#"))
    return {name: value for name, colon, value in pairs if colon}
