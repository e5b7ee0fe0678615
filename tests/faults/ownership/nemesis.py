"""Harm at random: picks faults, sometimes two at once, proves that they fired, waits until all is well again.

What it draws comes from one seed. What the runners did meanwhile is judged at the end, by their histories.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import anyio

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.embedded import PostgresServer, RedisServer
from redis_cluster_kit.redis_access import Script
from redis_cluster_kit.testing import FactNeverCameError, Proxy, Verdict, command, until

from .crew import Crew

RECOVERY = 60.0
OF_LEASES = ("lease/acquire", "lease/renew", "lease/release")
OF_DATA = ("fence/install", "fence/check", "membership/heartbeat", "state/write")
ALWAYS_SENT = "membership/heartbeat"
Fault = Callable[[], Awaitable[int]]


@dataclass
class Tally:
    """One fault's runs: what was proven to have fired, and how long after its end all was written again."""

    runs: int = 0
    fired: int = 0
    recoveries: list[float] = field(default_factory=list[float])

    def line(self, name: str) -> str:
        ordered = sorted(self.recoveries)
        last = len(ordered) - 1
        p50, p99 = statistics.median(ordered), ordered[round(last * 0.99)]
        return f"{name:44}{self.runs:>6}{self.fired:>8}{p50:>9.2f}{p99:>9.2f}{ordered[-1]:>9.2f}"


@dataclass
class Nemesis:
    """Harms the servers, the ways to them, and the runners of a crew."""

    crew: Crew
    chance: random.Random
    redis: RedisServer
    postgres: PostgresServer
    to_redis: Proxy
    to_postgres: Proxy
    nodes: Sequence[RedisServer] = ()
    say: Callable[[str], None] = print
    tallies: dict[str, Tally] = field(default_factory=dict[str, Tally])

    def faults(self) -> dict[str, Fault]:
        """What can be done; faults whose names begin alike are never done at once."""
        found: dict[str, Fault] = {
            "runner killed": self.kill,
            "runner asked to go": self.terminate,
            "runner stopped and woken": self.stop,
            "redis wiped": self.wipe,
            "redis evicts a fence": self.evict,
            "redis forgets its scripts": self.flush_scripts,
            "redis restarted empty": self.restart_redis,
            "redis hangs": self.hang_redis,
            "way to redis cut": lambda: self.cut(self.to_redis),
            "way to redis slow": lambda: self.delay(self.to_redis),
            "way to redis loses one reply": self.lose_reply,
            "database hangs": self.hang_postgres,
            "database killed": self.kill_postgres,
            "database ends its sessions": self.end_sessions,
            "database's way cut": lambda: self.cut(self.to_postgres),
            "database's way slow": lambda: self.delay(self.to_postgres),
        }
        if self.nodes:
            found["lease node restarted empty"] = self.restart_node
            found["lease node hangs"] = self.hang_node
        return found

    async def go_on(self, until_then: float) -> None:
        """Harm and let recover until that time; every fault comes once before any comes twice."""
        waiting: list[str] = []
        while Clock.boot() < until_then:
            if not waiting:
                waiting = list(self.faults())
                self.chance.shuffle(waiting)
            chosen = [waiting.pop()]
            if waiting and self.chance.random() < 0.3 and _kind(waiting[-1]) != _kind(chosen[0]):
                chosen.append(waiting.pop())
            await self.harm(chosen)

    async def harm(self, names: Sequence[str]) -> None:
        """Do these faults at once; then everybody who should be there is, and all must be well again."""
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(self._do, name)
        took = await self.recover(" and ".join(names))
        for name in names:
            self.tallies[name].recoveries.append(took)

    async def recover(self, what: str) -> float:
        """Replace who is gone; return how long after the fault running runners had written every shard."""
        over = Clock.boot()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.come_back)
            try:
                seen = await self.crew.serves(over, within=RECOVERY)
            except FactNeverCameError as error:
                error.add_note(f"after {what}")
                raise
        self.say(f"{what}: all shards written again {seen - over:.2f} s later")
        return seen - over

    async def _do(self, name: str) -> None:
        fired = await self.faults()[name]()
        tally = self.tallies.setdefault(name, Tally())
        tally.runs += 1
        tally.fired += fired
        if not fired:
            raise AssertionError(f"expected {name!r} to have happened")

    async def come_back(self) -> None:
        """Start a runner for every one that is gone."""
        for name, child in list(self.crew.children.items()):
            if child.returncode is not None:
                await self.crew.join(name)

    def report(self, verdict: Verdict) -> str:
        """The table for people."""
        head = f"{'fault':44}{'runs':>6}{'fired':>8}{'p50 s':>9}{'p99 s':>9}{'max s':>9}"
        lines = [tally.line(name) for name, tally in sorted(self.tallies.items()) if tally.recoveries]
        counts = ", ".join(f"{name} {count:g}" for name, count in verdict.examined.items())
        return "\n".join([head, *lines, f"{counts}, violations {len(verdict.violations)}"])

    # Faults on runners

    def victim(self) -> str:
        return self.chance.choice(sorted(self.crew.live))

    def span(self, least: float = 0.2, most: float = 3.0) -> float:
        return self.chance.uniform(least, most) * self.crew.ttl

    async def kill(self) -> int:
        await self.crew.kill(self.victim())
        return 1

    async def terminate(self) -> int:
        leaving = self.crew.children[self.victim()]
        leaving.terminate()
        await leaving.wait(timeout=30)
        return 1

    async def stop(self) -> int:
        name = self.victim()
        await self.crew.stop(name)
        await anyio.sleep(self.span())
        await self.crew.wake(name)
        return 1

    # Faults of servers

    async def wipe(self) -> int:
        held = self.redis.call("DBSIZE")
        self.redis.call("FLUSHALL")
        return int(str(held)) > 0

    async def evict(self) -> int:
        found = self.redis.call("KEYS", "rck:*:fence:*")
        assert isinstance(found, list)
        return int(str(self.redis.call("DEL", str(self.chance.choice(found))))) if found else 1

    async def flush_scripts(self) -> int:
        sha = Script.load(ALWAYS_SENT).sha
        await until(lambda: self.redis.call("SCRIPT", "EXISTS", sha) == [1], timeout=30, what="a heartbeat")
        self.redis.call("SCRIPT", "FLUSH", "SYNC")
        return 1

    async def restart_redis(self) -> int:
        return await self._restart_empty(self.redis)

    async def restart_node(self) -> int:
        return await self._restart_empty(self.chance.choice(list(self.nodes)))

    async def _restart_empty(self, server: RedisServer) -> int:
        server.kill()
        await anyio.sleep(self.span(0.0, 2.0))
        server.restart(empty=True)
        return 1

    async def hang_redis(self) -> int:
        return await self._hang(self.redis)

    async def hang_node(self) -> int:
        return await self._hang(self.chance.choice(list(self.nodes)))

    async def hang_postgres(self) -> int:
        return await self._hang(self.postgres)

    async def _hang(self, server: RedisServer | PostgresServer) -> int:
        server.pause()
        await anyio.sleep(self.span())
        server.resume()
        return 1

    async def kill_postgres(self) -> int:
        self.postgres.kill()
        await anyio.sleep(self.span(0.0, 2.0))
        self.postgres.restart()
        return 1

    async def end_sessions(self) -> int:
        return int(
            self.postgres.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = 'proof'"
            )
        )

    # Faults of the ways to them

    async def cut(self, way: Proxy) -> int:
        with way.cut(self.chance.choice(["to_server", "to_client", "both"])) as rule:
            await anyio.sleep(self.span())
            await until(lambda: rule.count, timeout=30, what="bytes swallowed")
        return rule.count

    async def delay(self, way: Proxy) -> int:
        with way.delay(0.05, 0.5, probability=0.5, seed=self.chance.randrange(2**32)) as rule:
            await anyio.sleep(self.span())
            await until(lambda: rule.count, timeout=30, what="packets held")
        return rule.count

    async def lose_reply(self) -> int:
        verb = self.chance.choice(OF_DATA if self.nodes else OF_LEASES + OF_DATA)
        rule = self.to_redis.lose_reply(command(sha=Script.load(verb).sha))
        with rule:
            await anyio.sleep(self.span(1.0, 1.0))
            if not rule.count:  # nobody had a reason to send it
                rule.lift()
                rule = self.to_redis.lose_reply(command(sha=Script.load(ALWAYS_SENT).sha))
                await until(lambda: rule.count, timeout=30, what="a heartbeat")
        return rule.count


def _kind(name: str) -> str:
    return name.split(maxsplit=1)[0].removesuffix("'s")
