"""One connection to one server: commands go out together, answers come back in order.

Many callers share it: each `submit` returns a future, the bytes of all submits of one loop turn leave in
one write, and hiredis parses the answers. A caller that stops waiting leaves the connection as it was. It
never reconnects and never repeats anything: that is the lane's.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

import hiredis

from redis_cluster_kit.errors import Execution, KitError, PersistenceFailedError

from .failures import classify, lost
from .urls import Endpoint, Login

ReplyError: Final = hiredis.ReplyError
pack: Final[Callable[[tuple[Any, ...]], bytes]] = cast("Any", hiredis).pack_command

_NO_REPLY: Final = object()
_HIGH_WATER = 4 * 1024 * 1024
# After 15 s without a byte the system asks the peer every 5 s, and gives up after three asks.
_KEEP_ALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))


@dataclass(frozen=True, slots=True)
class Dialling:
    """How connections of one role are opened."""

    connect_timeout: float
    stall_timeout: float
    """How long a server may owe an answer without sending a byte before the connection counts as lost."""
    login: Login = field(repr=False)
    database: int = 0
    tls: ssl.SSLContext | None = None
    name: str = "rck"


class Receiver(Protocol):
    """What takes a reply: a future, or what stands for several."""

    def done(self) -> bool: ...
    def set_result(self, reply: Any, /) -> None: ...
    def set_exception(self, error: BaseException, /) -> None: ...
    def exception(self) -> BaseException | None: ...


class Connection(asyncio.Protocol):
    """A live connection; made by `connect`."""

    def __init__(self, endpoint: Endpoint, stall_timeout: float) -> None:
        self.endpoint = endpoint
        self.is_lost = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader: Any = hiredis.Reader(notEnoughData=_NO_REPLY)
        self._owed: deque[Receiver] = deque()
        self._unwritten: list[bytes] = []
        self._flush_planned = False
        self._is_paused = False
        self._is_retired = False
        self._stall_timeout = stall_timeout
        self._progress = self._loop.time()
        self._watch: asyncio.TimerHandle | None = None
        self._loss: str = ""
        self._closed = self._loop.create_future()

    # What callers use

    def submit(self, packed: bytes) -> asyncio.Future[Any]:
        """Queue one packed command; the future gets the reply, an error reply included as a value."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self.submit_for(future, packed)
        return future

    def submit_for(self, receiver: Receiver, packed: bytes) -> None:
        """The same, for what takes the reply instead of a future."""
        if self.is_lost:
            raise lost(Execution.NOT_EXECUTED, f"connection to {self.endpoint} is lost: {self._loss}")
        if not self._owed:
            self._progress = self._loop.time()
            if self._watch is None:
                self._watch = self._loop.call_at(self._progress + self._stall_timeout, self._check_progress)
        self._owed.append(receiver)
        self._unwritten.append(packed)
        if not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def abort(self, reason: str) -> None:
        """Give the connection up at once; whoever waits is told what is known of their command."""
        if not self.is_lost:
            self._loss = reason
            transport = self._transport
            self._lose()
            if transport is not None:
                transport.abort()

    def retire(self) -> None:
        """Close as soon as nothing is owed any more; the owner submits nothing from now on."""
        self._is_retired = True
        if not self._owed:
            self.abort("retired")

    async def close(self) -> None:
        """Close, and wait until the socket is gone."""
        self.abort("closed by this side")
        if self._transport is not None:
            await asyncio.shield(self._closed)

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        _keep_alive(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        reader, owed = self._reader, self._owed
        reader.feed(data)
        self._progress = self._loop.time()
        try:
            while (reply := reader.gets()) is not _NO_REPLY:
                future = owed.popleft()
                if not future.done():
                    future.set_result(reply)
        except Exception as error:  # noqa: BLE001 - hiredis raises TypeError and ValueError too
            self.abort(f"the server sent what is not an answer ({type(error).__name__})")
        if self._is_retired and not owed:
            self.abort("retired")

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._loss = self._loss or (str(exc) if exc else "closed by the server")
        self._lose()
        if not self._closed.done():
            self._closed.set_result(None)

    # Inside

    def _flush(self) -> None:
        self._flush_planned = False
        self.flush()

    def flush(self) -> None:
        """Write at once what is queued."""
        if self._unwritten and not self._is_paused and self._transport is not None and not self.is_lost:
            data = self._unwritten[0] if len(self._unwritten) == 1 else b"".join(self._unwritten)
            if len(self._unwritten) == len(self._owed):
                # The server's time runs from here: a loop that was held up before is not its silence.
                self._progress = self._loop.time()
            self._unwritten.clear()
            self._transport.write(data)

    def _check_progress(self) -> None:
        """Give up on a server that owes an answer and sends nothing; runs when that would be so."""
        watch, self._watch = self._watch, None
        if watch is None or not self._owed or self.is_lost:
            return
        now = self._loop.time()
        if now - watch.when() > self._stall_timeout / 2:
            # This process was held up, maybe the whole host: whoever is late itself cannot judge others.
            self._progress = now
        due = self._progress + self._stall_timeout
        if now >= due:
            self.abort(f"no answer for {self._stall_timeout:g} s")
        else:
            self._watch = self._loop.call_at(due, self._check_progress)

    def _lose(self) -> None:
        """Resolve what is owed: what was never written did not run, the rest may have."""
        self.is_lost = True
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        written = len(self._owed) - len(self._unwritten)
        self._unwritten.clear()
        for place, future in enumerate(self._owed):
            if not future.done():
                known = Execution.UNKNOWN if place < written else Execution.NOT_EXECUTED
                future.set_exception(lost(known, f"connection to {self.endpoint} is lost: {self._loss}"))
                future.exception()  # seen: a caller that went away meanwhile is no reason for a warning
        self._owed.clear()


def _keep_alive(server: socket.socket) -> None:
    """Let the system notice a peer that vanished while nothing was owed, before a command is risked on it."""
    if server.family in (socket.AF_INET, socket.AF_INET6):
        server.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE:
            if hasattr(socket, name):
                server.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def connect(endpoint: Endpoint, dialling: Dialling) -> Connection:
    """Open a connection and log in; `PersistenceFailedError` (not executed) if that fails in time."""
    connection: Connection | None = None
    try:
        async with asyncio.timeout(dialling.connect_timeout):
            connection = await _open(endpoint, dialling)
            await _log_in(connection, dialling)
    except TimeoutError as error:
        _discard(connection, "not opened in time")
        raise lost(
            Execution.NOT_EXECUTED, f"{endpoint} did not answer within {dialling.connect_timeout:g} s"
        ) from error
    except (OSError, ssl.SSLError) as error:
        _discard(connection, "not opened")
        raise lost(Execution.NOT_EXECUTED, f"cannot connect to {endpoint}: {error}", error) from error
    except KitError as error:
        _discard(connection, "login failed")
        if isinstance(error, PersistenceFailedError) and error.execution is Execution.UNKNOWN:
            # Only the greeting was sent: no command of a caller can have run.
            raise lost(Execution.NOT_EXECUTED, error.detail, error) from error
        raise
    except BaseException:
        _discard(connection, "cancelled while opening")
        raise
    return connection


async def _open(endpoint: Endpoint, dialling: Dialling) -> Connection:
    loop = asyncio.get_running_loop()

    def protocol() -> Connection:
        return Connection(endpoint, dialling.stall_timeout)

    if endpoint.path:
        return (await loop.create_unix_connection(protocol, endpoint.path))[1]
    name = endpoint.host if dialling.tls is not None else None
    return (
        await loop.create_connection(
            protocol, endpoint.host, endpoint.port, ssl=dialling.tls, server_hostname=name
        )
    )[1]


async def _log_in(connection: Connection, dialling: Dialling) -> None:
    greeting: list[tuple[str | int, ...]] = []
    login = dialling.login
    if login.password is not None:
        user = () if login.username is None else (login.username,)
        greeting.append(("AUTH", *user, login.password))
    if dialling.database:
        greeting.append(("SELECT", dialling.database))
    greeting.append(("CLIENT", "SETNAME", dialling.name))
    answers = [connection.submit(pack(words)) for words in greeting]
    for words, answer in zip(greeting, answers, strict=True):
        reply = await answer
        if isinstance(reply, ReplyError):
            found = classify(reply)
            if found.passes:
                raise found.to_error()
            if found.code != "NOPERM" or words[0] != "CLIENT":  # without a name one can work
                # A server that does not know AUTH repeats what it was given: the password.
                text = found.text.partition(", with args beginning with")[0]
                raise _refused(connection.endpoint, str(words[0]), text)


def _refused(endpoint: Endpoint, command: str, text: str) -> PersistenceFailedError:
    return PersistenceFailedError(
        store="redis",
        execution=Execution.NOT_EXECUTED,
        is_retryable=False,
        detail=f"{endpoint} refused {command}: {text}",
    )


def _discard(connection: Connection | None, reason: str) -> None:
    if connection is not None:
        connection.abort(reason)
