"""Which server holds a slot: asked of the deployment, remembered until somebody doubts it.

Three kinds behind one small Protocol. Nothing here sends a caller's command.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeVar

from redis_cluster_kit.errors import Execution, PersistenceFailedError

from .connection import Connection, Dialling, ReplyError, connect, pack
from .failures import classify, lost
from .sharing import SharedAttempt
from .urls import Endpoint, RedisUrl

_T = TypeVar("_T")
_Ranges = list[tuple[int, int, Endpoint]]


class Topology(Protocol):
    """Finds the server of a slot."""

    async def locate(self, slot: int) -> Endpoint:
        """Return the server that holds `slot` now, asking the deployment if that is not known."""
        ...

    def forget(self) -> None:
        """Doubt what is known: the next `locate` asks again."""
        ...

    async def masters(self) -> list[Endpoint]:
        """Return every server that holds slots."""
        ...

    def close(self) -> None:
        """Stop asking; `locate` is refused where it would have to."""
        ...


class Standalone:
    """One server holds everything."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def locate(self, slot: int) -> Endpoint:  # noqa: ARG002 (one server: any slot is there)
        return self._endpoint

    def forget(self) -> None:
        pass

    async def masters(self) -> list[Endpoint]:
        return [self._endpoint]

    def close(self) -> None:
        pass


class Sentinel:
    """The primary that a sentinel names and that says of itself that it is one."""

    def __init__(self, url: RedisUrl, sentinels: Dialling, servers: Dialling) -> None:
        self._url = url
        self._sentinels = sentinels
        self._servers = servers
        self._primary: Endpoint | None = None
        self._search = SharedAttempt(lambda: self._primary, self._find)

    async def locate(self, slot: int) -> Endpoint:  # noqa: ARG002 (one primary: any slot is there)
        return self._primary or await self._search.get()

    def forget(self) -> None:
        self._primary = None

    async def masters(self) -> list[Endpoint]:
        return [await self.locate(0)]

    def close(self) -> None:
        self._search.close()

    async def _find(self) -> Endpoint:
        self._primary = await _first_answer(self._url.endpoints, self._ask)
        return self._primary

    async def _ask(self, sentinel: Endpoint) -> Endpoint:
        reply = await _ask_once(
            sentinel, self._sentinels, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._url.master
        )
        if not reply:
            raise lost(Execution.NOT_EXECUTED, f"sentinel {sentinel} knows no master {self._url.master!r}")
        primary = Endpoint(reply[0].decode(), int(reply[1]))
        role = await _ask_once(primary, self._servers, "ROLE")
        if role[0] != b"master":
            # A sentinel may name the old primary until the failover is done everywhere.
            raise lost(
                Execution.NOT_EXECUTED, f"{primary}, named by sentinel {sentinel}, is a {role[0].decode()}"
            )
        return primary


class Cluster:
    """Slots spread over several masters."""

    def __init__(self, seeds: Iterable[Endpoint], dialling: Dialling) -> None:
        self._seeds = tuple(seeds)
        self._dialling = dialling
        self._known: list[Endpoint] = []
        self._ranges: _Ranges | None = None
        self._search = SharedAttempt(lambda: self._ranges, self._find)

    async def locate(self, slot: int) -> Endpoint:
        for first, last, endpoint in self._ranges or await self._search.get():
            if first <= slot <= last:
                return endpoint
        self._ranges = None
        raise lost(Execution.NOT_EXECUTED, f"no server of the cluster holds slot {slot}")

    def forget(self) -> None:
        self._ranges = None

    async def masters(self) -> list[Endpoint]:
        return _owners(self._ranges or await self._search.get())

    def close(self) -> None:
        self._search.close()

    async def _find(self) -> _Ranges:
        self._ranges = await _first_answer(dict.fromkeys((*self._known, *self._seeds)), self._ask)
        self._known = _owners(self._ranges)
        return self._ranges

    async def _ask(self, seed: Endpoint) -> _Ranges:
        reply = await _ask_once(seed, self._dialling, "CLUSTER", "SLOTS")
        if not reply:
            raise lost(Execution.NOT_EXECUTED, f"{seed} knows no server that holds slots")
        return [
            (first, last, Endpoint(_host(master[0], seed.host), master[1]))
            for first, last, master, *_ in reply
        ]


def _owners(ranges: _Ranges) -> list[Endpoint]:
    return list(dict.fromkeys(endpoint for _, _, endpoint in ranges))


def _host(named: bytes | None, asked: str) -> str:
    # A server that does not know its own name answers without one, or with "?": the one we asked.
    return asked if named in (None, b"", b"?") else named.decode()


def topology_for(url: RedisUrl, servers: Dialling, sentinels: Dialling) -> Topology:
    """Return the topology that `url` names."""
    if url.topology == "cluster":
        return Cluster(url.endpoints, servers)
    if url.topology == "sentinel":
        return Sentinel(url, sentinels, servers)
    return Standalone(url.endpoints[0])


async def _ask_once(endpoint: Endpoint, dialling: Dialling, *words: str) -> Any:
    connection: Connection = await connect(endpoint, dialling)
    try:
        reply = await connection.submit(pack(words))
    finally:
        await connection.close()
    if isinstance(reply, ReplyError):
        raise classify(reply).to_error()
    return reply


async def _first_answer(endpoints: Iterable[Endpoint], ask: Callable[[Endpoint], Awaitable[_T]]) -> _T:
    """Ask one after the other until one answers; if none does, say what each of them said."""
    said: list[str] = []
    for endpoint in endpoints:
        try:
            return await ask(endpoint)
        except PersistenceFailedError as error:
            if not error.is_retryable:
                raise
            said.append(error.detail)
    raise lost(Execution.NOT_EXECUTED, "; ".join(said))
