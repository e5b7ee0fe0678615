"""Lanes: many callers, one pipelined connection per server, and the one place that sends a command again.

A command is sent again only when it surely did not run, or when its caller says that repeating it is safe.
Each role (leases, commands, blocking readers) has its own lanes, so none waits behind another.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Literal, Self

from redis_cluster_kit.errors import Execution, JoinRefusedError, PersistenceFailedError
from redis_cluster_kit.settings import RedisSettings

from .connection import Connection, Dialling, Receiver, ReplyError, connect, pack
from .failures import ErrorReply, classify, closed, doubtful
from .sharing import SharedAttempt
from .topology import topology_for
from .urls import Endpoint, RedisUrl

Role = Literal["lease", "command", "reader"]
Word = str | bytes | int | float

_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.25
_ASKING = pack(("ASKING",))


class Lane:
    """One server's connection, opened when first needed and again after it was lost."""

    def __init__(self, endpoint: Endpoint, dialling: Dialling) -> None:
        self.endpoint = endpoint
        self._dialling = dialling
        self._connection: Connection | None = None
        self._retired: list[Connection] = []
        self._opening = SharedAttempt(self.live, self._connect)

    async def call(self, packed: bytes) -> Any:
        """Send one packed command and return its reply, an error reply included."""
        connection = self._connection
        if connection is None or connection.is_lost:
            connection = await self._opening.get()
        return await connection.submit(packed)

    async def call_asking(self, packed: bytes) -> Any:
        """The same for a slot that is on its way to this server."""
        connection = self._connection
        if connection is None or connection.is_lost:
            connection = await self._opening.get()
        connection.submit(_ASKING)  # holds for the next command only; that one's answer says all there is
        return await connection.submit(packed)

    def send(self, packed: bytes) -> bool:
        """Send a command whose reply nobody reads; False: there is no connection at the moment."""
        connection = self.live()
        if connection is None:
            return False
        connection.submit(packed)
        return True

    async def connection(self) -> Connection:
        """Return the live connection, opening one if there is none."""
        return self.live() or await self._opening.get()

    def renew(self) -> None:
        """Open another connection for what comes next; what is owed on this one is still waited for."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.retire()
            self._retired = [one for one in (*self._retired, connection) if not one.is_lost]

    def abort(self) -> None:
        """Give up what is open; nothing is opened from now on."""
        self._opening.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            self._retired.append(connection)
        for one in self._retired:
            one.abort("closed by this side")

    async def close(self) -> None:
        """Close what is open, and wait until its sockets are gone."""
        self.abort()
        for one in self._retired:
            await one.close()

    def live(self) -> Connection | None:
        """Return the connection if it is open."""
        connection = self._connection
        return None if connection is None or connection.is_lost else connection

    async def _connect(self) -> Connection:
        connection = await connect(self.endpoint, self._dialling)
        if self._opening.is_closed:  # in the moment in which it was opened
            await connection.close()
            raise closed()
        self._connection = connection
        return connection


class Lanes:
    """The lanes of one role to one deployment. `async with` closes them."""

    def __init__(
        self,
        url: RedisUrl,
        settings: RedisSettings,
        *,
        role: Role = "command",
        retry_for: float | None = None,
        stall_timeout: float | None = None,
    ) -> None:
        if url.exposes_password and not settings.allow_plaintext_password:
            raise JoinRefusedError(
                setting="redis URL",
                expected="rediss:// where a password goes to another host",
                found="an unencrypted connection",
                hint="use rediss://, or set RedisSettings.allow_plaintext_password",
            )
        self.url = url
        self._retry_for = settings.retry_for.total_seconds() if retry_for is None else retry_for
        tls = _tls_context(settings) if url.is_encrypted else None
        stall = settings.command_timeout.total_seconds() if stall_timeout is None else stall_timeout
        opening = settings.connect_timeout.total_seconds()
        self._dialling = Dialling(opening, stall, url.login, url.database, tls, f"rck-{role}")
        sentinels = Dialling(opening, stall, url.sentinel_login, 0, tls, f"rck-{role}")
        self._topology = topology_for(url, self._dialling, sentinels)
        self._lanes: dict[Endpoint, Lane] = {}
        self._routes: dict[int, Lane] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; later calls are refused."""
        self._is_closed = True
        sending = tuple(self._sending)
        for attempt in sending:
            attempt.cancel()
        self._topology.close()
        lanes, self._lanes, self._routes = self._lanes, {}, {}
        for lane in lanes.values():  # all before the first wait: a cancelled close leaves none open
            lane.abort()
        for lane in lanes.values():
            await lane.close()
        if sending:
            await asyncio.wait(sending)

    async def call(self, slot: int, *words: Word, repeat: bool = False) -> Any:
        """Send a command to the server of `slot` and return its reply.

        `repeat`: it may be sent again although it may have run already. Raises `PersistenceFailedError`.
        """
        return await self.call_packed(slot, pack(words), repeat=repeat)

    def send(self, slot: int, *words: Word) -> None:
        """Send a best-effort command: nobody waits for it, and nobody hears if it fails."""
        packed = pack(words)
        lane = self._routes.get(slot)
        if self._is_closed or (lane is not None and lane.send(packed)):
            return
        attempt = asyncio.create_task(self._try_to_send(slot, packed))
        self._sending.add(attempt)
        attempt.add_done_callback(self._sending.discard)

    def submit(self, slot: int, packed: bytes, receiver: Receiver) -> bool:
        """Queue a packed command where its server is known and connected; False: it is not.

        Nothing is repeated here: the receiver gets whatever comes, a lost connection too.
        """
        lane = self._routes.get(slot)
        connection = None if lane is None else lane.live()
        if connection is None or self._is_closed:
            return False
        connection.submit_for(receiver, packed)
        return True

    def flush(self, slot: int) -> None:
        """Write at once what is queued for the server of `slot`."""
        lane = self._routes.get(slot)
        connection = None if lane is None else lane.live()
        if connection is not None:
            connection.flush()

    async def call_replicated(self, slot: int, packed: bytes, replicas: int, wait_ms: int) -> tuple[Any, int]:
        """Send a command, and on the same connection wait until so many replicas have what it wrote.

        Return its reply and how many have it. Nothing is repeated; others on these lanes wait meanwhile.
        """
        lane = self._routes.get(slot) or self._lane(await self._topology.locate(slot))
        self._routes[slot] = lane
        connection = await lane.connection()
        sent = connection.submit(packed)
        waited = connection.submit(pack(("WAIT", replicas, wait_ms)))
        reply, count = await sent, await waited
        for answer in (reply, count):
            if isinstance(answer, ReplyError):
                seen = classify(answer)
                self._learn(slot, seen)
                raise seen.to_error()
        return reply, count

    async def _try_to_send(self, slot: int, packed: bytes) -> None:
        with contextlib.suppress(PersistenceFailedError):
            await self.call_packed(slot, packed)

    async def call_packed(self, slot: int, packed: bytes, *, repeat: bool = False) -> Any:
        """`call` for a command that is already packed."""
        lane = self._routes.get(slot)
        if lane is not None:
            connection = lane.live()
            try:
                reply = await (lane.call(packed) if connection is None else connection.submit(packed))
            except PersistenceFailedError as error:
                return await self._again(slot, packed, repeat, error)
            if not isinstance(reply, ReplyError):
                return reply
            return await self._again(slot, packed, repeat, classify(reply))
        return await self._again(slot, packed, repeat, None)

    async def call_each_master(self, *words: Word) -> list[Any]:
        """Send a command to every server that holds slots: for settings and other facts about servers."""
        replies = list((await self.call_every_master(*words)).values())
        for reply in replies:
            if isinstance(reply, PersistenceFailedError):
                raise reply
        return replies

    async def scan(self, pattern: str, count: int = 1000) -> AsyncIterator[bytes]:
        """Yield the keys that match, server by server: what is there throughout comes once or more."""
        for endpoint in await self._topology.masters():
            cursor: Word = 0
            while True:
                reply = await self._lane(endpoint).call(
                    pack(("SCAN", cursor, "MATCH", pattern, "COUNT", count))
                )
                if isinstance(reply, ReplyError):
                    raise classify(reply).to_error()
                cursor, keys = reply
                for key in keys:
                    yield key
                if cursor == b"0":
                    break

    async def call_every_master(self, *words: Word) -> dict[str, Any]:
        """`call_each_master` by server, all at once; a refusal is an error in its server's place."""
        endpoints = await self._topology.masters()
        replies = await asyncio.gather(*(self._lane(endpoint).call(pack(words)) for endpoint in endpoints))
        return {
            str(endpoint): classify(reply).to_error() if isinstance(reply, ReplyError) else reply
            for endpoint, reply in zip(endpoints, replies, strict=True)
        }

    async def _again(
        self, slot: int, packed: bytes, repeat: bool, seen: PersistenceFailedError | ErrorReply | None
    ) -> Any:
        """Try until it works, the time for it is up, or trying again could run the command twice."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._retry_for
        pause = _FIRST_PAUSE
        asking: Endpoint | None = None
        may_have_run = False
        while True:
            if seen is not None:
                asking = self._learn(slot, seen)
                error = _error(seen)
                if may_have_run:  # what is surely so of this attempt says nothing about the earlier one
                    error = doubtful(error)
                if self._is_closed or not _is_repeatable(seen, repeat):
                    raise error
                may_have_run = error.execution is Execution.UNKNOWN
                # A redirection is followed at once; everything else is given a moment.
                if not (isinstance(seen, ErrorReply) and seen.code in ("MOVED", "ASK")) or pause > 0.05:
                    if loop.time() + pause > deadline:
                        raise error
                    await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _LONGEST_PAUSE)
            try:
                reply = await self._attempt(slot, packed, asking)
            except PersistenceFailedError as error:
                seen = error
                continue
            if not isinstance(reply, ReplyError):
                return reply
            seen = classify(reply)

    async def _attempt(self, slot: int, packed: bytes, asking: Endpoint | None) -> Any:
        if asking is not None:
            return await self._lane(asking).call_asking(packed)
        lane = self._routes.get(slot)
        if lane is None:
            lane = self._lane(await self._topology.locate(slot))
            self._routes[slot] = lane
        return await lane.call(packed)

    def _learn(self, slot: int, seen: PersistenceFailedError | ErrorReply) -> Endpoint | None:
        """Doubt the routes where the failure gives reason to; return where an ASK points."""
        if isinstance(seen, ErrorReply):
            lane = self._routes.get(slot)
            if seen.code == "ASK" and lane is not None:
                return _pointed_at(seen.text, lane.endpoint.host)
            if not seen.doubts_route:
                return None
            if seen.is_demoted and lane is not None:
                lane.renew()
        self._topology.forget()
        self._routes.clear()
        return None

    def _lane(self, endpoint: Endpoint) -> Lane:
        if self._is_closed:
            raise closed()
        lane = self._lanes.get(endpoint)
        if lane is None:
            lane = self._lanes[endpoint] = Lane(endpoint, self._dialling)
        return lane


def _is_repeatable(seen: PersistenceFailedError | ErrorReply, repeat: bool) -> bool:
    if isinstance(seen, ErrorReply):
        return seen.passes
    return seen.is_retryable and (repeat or seen.execution is not Execution.UNKNOWN)


def _error(seen: PersistenceFailedError | ErrorReply) -> PersistenceFailedError:
    return seen.to_error() if isinstance(seen, ErrorReply) else seen


def _pointed_at(redirection: str, asked: str) -> Endpoint:
    host, _, port = redirection.split()[2].rpartition(":")
    return Endpoint(host or asked, int(port))


def _tls_context(settings: RedisSettings) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.tls_ca)
    if settings.tls_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
