"""A TCP proxy in front of a real server that loses, delays, cuts, resets, refuses and drips on demand.

Faults are rules, set and lifted while it runs; each counts what it really did, so that a test can prove
its fault happened. It understands RESP to aim at one command; with `resp=False` it moves plain bytes
(PostgreSQL, TLS). It never invents or reorders bytes: a stream that lost some passes none after them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit

from .resp_frames import Command, Conversation, Direction, Match, command

Way: TypeAlias = Literal["to_server", "to_client", "both"]
After: TypeAlias = Literal["silent", "reset", "close"]
_Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
R = TypeVar("R", bound="Rule")

__all__ = ["After", "Loss", "Proxy", "Rule", "Way", "command"]

_DIRECTIONS: tuple[Direction, Direction] = ("to_server", "to_client")


class Rule:
    """One fault. In force until lifted; `with proxy.cut("both") as rule:` lifts it at the end."""

    def __init__(self, name: str, on_lift: Callable[[], None] | None = None) -> None:
        self.name = name
        self.count = 0
        """How often it really happened. A fault test asserts that this is not 0."""
        self.active = True
        self._on_lift = on_lift

    def lift(self) -> None:
        """Stop the fault; lifting twice is the same as once."""
        if self.active:
            self.active = False
            if self._on_lift is not None:
                self._on_lift()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.lift()

    def __repr__(self) -> str:
        return f"<{self.name}: {self.count} times, {'in force' if self.active else 'lifted'}>"


class Loss(Rule):
    """Loses one reply, or one command before the server sees it."""

    def __init__(
        self, what: Literal["reply", "command"], match: Match, nth: int, then: After, errors: bool
    ) -> None:
        super().__init__(f"lose {what}")
        self.what: Literal["reply", "command"] = what
        self.then: After = then
        self.errors = errors
        self.collateral = 0
        """Other commands of the same connection, already sent, whose replies were lost with this one."""
        self._match = match
        self._wait = nth

    def takes(self, frame: Command) -> bool:
        """Count a command; say whether it is the one to lose."""
        if not self.active or self._wait <= 0 or not self._match(frame):
            return False
        self._wait -= 1
        return self._wait == 0

    def try_the_next(self) -> None:
        """Aim at the next match: this one turned out not to have run."""
        self._wait = 1


class _Passage(Rule):
    """A rule about the bytes of one direction, or of both."""

    def __init__(self, name: str, way: Way, on_lift: Callable[[], None] | None = None) -> None:
        super().__init__(f"{name} {way}", on_lift)
        self.way: Way = way

    def covers(self, direction: Direction) -> bool:
        return self.active and self.way in (direction, "both")


class _Delay(_Passage):
    def __init__(self, way: Way, low: float, high: float, probability: float, seed: int) -> None:
        super().__init__("delay", way)
        self._range = (low, high)
        self._probability = probability
        self._random = random.Random(seed)

    def draw(self) -> float:
        if self._random.random() >= self._probability:
            return 0.0
        self.count += 1
        return self._random.uniform(*self._range)


class _Cut(_Passage):
    pass


class _Hold(_Passage):
    def __init__(self, way: Way) -> None:
        self.over = asyncio.Event()
        super().__init__("hold", way, self.over.set)


class _Drip(_Passage):
    def __init__(self, way: Way, size: int, interval: float) -> None:
        super().__init__("drip", way)
        self.size = size
        self.interval = interval


class _Refusal(Rule):
    def __init__(self, how: Literal["closed", "reset"], on_lift: Callable[[], None]) -> None:
        super().__init__(f"refuse ({how})", on_lift)
        self.how = how


class Proxy:
    """`async with Proxy.to(host, port) as proxy:` listens on `proxy.port` and passes everything on."""

    def __init__(self, connect: Callable[[], Coroutine[None, None, _Streams]], *, resp: bool = True) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self.resp = resp
        self.rules: list[Rule] = []
        """Every rule ever set, lifted ones too."""
        self._connect = connect
        self._links: set[_Link] = set()
        self._place: socket.socket | None = None
        self._door: socket.socket | None = None
        self._group = asyncio.TaskGroup()
        self._serving: set[asyncio.Task[None]] = set()

    @classmethod
    def to(cls, host: str, port: int, *, resp: bool = True) -> Self:
        """Stand in front of a TCP server."""
        return cls(lambda: asyncio.open_connection(host, port), resp=resp)

    @classmethod
    def to_unix(cls, path: str, *, resp: bool = True) -> Self:
        """Stand, on a TCP port, in front of a server on a unix socket."""
        return cls(lambda: asyncio.open_unix_connection(path), resp=resp)

    def retarget(self, host: str, port: int) -> None:
        """Send new connections to another server, as a moved address does; open ones stay where they are."""
        self._connect = lambda: asyncio.open_connection(host, port)

    def url(self, like: str = "redis://") -> str:
        """Return the given URL with this proxy's host and port in place of its own."""
        parts = urlsplit(like)
        credentials, at, _ = parts.netloc.rpartition("@")
        address = f"{parts.scheme}://{credentials}{at}{self.host}:{self.port}{parts.path}"
        return f"{address}?{parts.query}" if parts.query else address

    @property
    def fired(self) -> int:
        """How many faults really happened, over all rules."""
        return sum(rule.count for rule in self.rules)

    @property
    def connections(self) -> int:
        """How many client connections are open now."""
        return len(self._links)

    def lose_reply(self, match: Match, *, nth: int = 1, then: After = "reset", errors: bool = False) -> Loss:
        """Let the nth matching command run and lose its reply; earlier replies arrive, no later ones.

        Then the connection is `reset`, closed (`close`) or stays open and dead (`silent`). A command that the
        server answered with an error (NOSCRIPT) is passed over for the next match, unless `errors=True`.
        """
        return self._set(Loss("reply", match, _from_one(nth), then, errors))

    def lose_command(self, match: Match, *, nth: int = 1, then: After = "reset") -> Loss:
        """Lose the nth matching command itself: the client cannot tell this from a lost reply."""
        return self._set(Loss("command", match, _from_one(nth), then, errors=True))

    def delay(
        self, low: float, high: float, *, probability: float = 1.0, seed: int = 0, direction: Way = "both"
    ) -> Rule:
        """Hold packets, each with this probability, for a random time in the range; order is kept."""
        return self._set(_Delay(direction, low, high, probability, seed))

    def cut(self, direction: Way = "both", *, on_lift: Literal["reset", "silent"] = "reset") -> Rule:
        """Swallow bytes, and ends of connections too, while the connections stay open.

        A connection that lost bytes cannot go on: lifting resets it, or leaves it open and dead (`silent`).
        """
        heal = self._reset_holed if on_lift == "reset" else None
        return self._set(_Cut("cut", direction, heal))

    def hold(self, direction: Way = "both") -> Rule:
        """Let nothing through until lifted, then everything: a partition that TCP outlives."""
        return self._set(_Hold(direction))

    def drip(self, size: int = 1, interval: float = 0.001, *, direction: Way = "both") -> Rule:
        """Pass only `size` bytes every `interval` seconds, on each connection."""
        return self._set(_Drip(direction, _from_one(size), interval))

    def reset_all(self) -> int:
        """Reset every open connection, both ends, by RST; return how many."""
        rule = self._set(Rule("reset"))
        for link in list(self._links):
            link.reset()
            rule.count += 1
        rule.active = False
        return rule.count

    def refuse(self, how: Literal["closed", "reset"] = "closed") -> Rule:
        """Refuse new connections; open ones live on.

        `closed`: the port is closed, so clients fail to connect, which nobody can count: the count is 1, the
        proxy's own attempt that was refused. `reset`: each is accepted and reset at once, and counted.
        """
        rule = self._set(_Refusal(how, self._admit))
        if how == "closed":
            self._close_door()
            try:
                socket.create_connection((self.host, self.port), timeout=1).close()
            except ConnectionRefusedError:
                rule.count += 1
        return rule

    def _set(self, rule: R) -> R:
        self.rules.append(rule)
        return rule

    def in_force(self, kind: type[R]) -> list[R]:
        """Return the rules of this kind that are not lifted."""
        return [rule for rule in self.rules if rule.active and isinstance(rule, kind)]

    def losses(self, frame: Command) -> list[Loss]:
        """Show a command to every rule that counts commands; return those that aim at it."""
        return [rule for rule in self.in_force(Loss) if rule.takes(frame)]

    def _reset_holed(self) -> None:
        for link in list(self._links):
            if link.holes:
                link.reset()

    async def __aenter__(self) -> Self:
        # Bound but never listening: it keeps the port ours while the door is closed, and lets it refuse.
        self._place = _bound(self.host, 0)
        self.port = self._place.getsockname()[1]
        await self._group.__aenter__()
        self._open_door()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close_door()
        assert self._place is not None
        self._place.close()
        for link in list(self._links):
            link.reset()
        for serving in list(self._serving):
            serving.cancel()
        # Not told of the block's own exception: a group would wrap it.
        await self._group.__aexit__(None, None, None)

    def _open_door(self) -> None:
        self._door = _bound(self.host, self.port)
        self._door.listen(256)
        self._door.setblocking(False)
        asyncio.get_running_loop().add_reader(self._door.fileno(), self._accept, self._door)

    def _close_door(self) -> None:
        if self._door is not None:
            asyncio.get_running_loop().remove_reader(self._door.fileno())
            self._door.close()
            self._door = None

    def _admit(self) -> None:
        if self._door is None and not any(rule.how == "closed" for rule in self.in_force(_Refusal)):
            self._open_door()

    def _accept(self, door: socket.socket) -> None:
        try:
            client, _ = door.accept()
        except (BlockingIOError, ConnectionAbortedError):  # the client has already gone again
            return
        refusals = self.in_force(_Refusal)
        if refusals:
            refusals[0].count += 1
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            return
        serving = self._group.create_task(self._serve(client))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        serving.add_done_callback(lambda _: client.close())  # if it was cancelled before it began

    async def _serve(self, accepted: socket.socket) -> None:
        client = await asyncio.open_connection(sock=accepted)
        try:
            server = await self._connect()
        except OSError:  # the server is down: the nearest thing to a refused connection
            _abort(client[1])
            return
        except asyncio.CancelledError:
            _abort(client[1])
            raise
        link = _Link(self, client, server)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)


@dataclass(slots=True)
class _Packet:
    """Bytes on their way: not before `due`, and what happens to the connection after them."""

    data: bytes
    due: float = 0.0
    then: Literal["go on", "end", "reset", "close"] = "go on"


class _Link:
    """One client's connection and its twin to the server: a reader and a writer for each direction."""

    def __init__(self, proxy: Proxy, client: _Streams, server: _Streams) -> None:
        self.holes: set[Direction] = set()
        """Directions that lost bytes."""
        self._proxy = proxy
        self._from = {"to_server": client[0], "to_client": server[0]}
        self._into = {"to_server": server[1], "to_client": client[1]}
        self._packets: dict[Direction, asyncio.Queue[_Packet]] = {d: asyncio.Queue(1024) for d in _DIRECTIONS}
        self._conversation = Conversation(proxy.losses) if proxy.resp else None
        self._running = len(_DIRECTIONS)
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Pass bytes until both directions ended or the link was reset."""
        for writer in self._into.values():
            writer.transport.set_write_buffer_limits(0)
        try:
            async with asyncio.TaskGroup() as group:
                pumps = [group.create_task(self._read(d)) for d in _DIRECTIONS]
                pumps += [group.create_task(self._write(d)) for d in _DIRECTIONS]
                await self._ended.wait()
                for pump in pumps:
                    pump.cancel()
        finally:
            for writer in self._into.values():
                writer.close()
        for writer in self._into.values():
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def reset(self) -> None:
        """End both connections by RST."""
        for writer in self._into.values():
            _abort(writer)
        self._ended.set()

    async def _read(self, direction: Direction) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                data = await self._from[direction].read(65536)
            except OSError:
                await self._packets[direction].put(_Packet(b"", then="reset"))
                return
            if not data:
                await self._packets[direction].put(_Packet(b"", then="end"))
                return
            packet = self._inspect(direction, data)
            if packet.data or packet.then != "go on":
                packet.due = loop.time() + sum(
                    rule.draw() for rule in self._proxy.in_force(_Delay) if rule.covers(direction)
                )
                await self._packets[direction].put(packet)

    def _inspect(self, direction: Direction, data: bytes) -> _Packet:
        """Return what of these bytes may pass, and what becomes of the connection after them."""
        if self._conversation is None:
            return _Packet(data)
        passed, loss = self._conversation.inspect(direction, data)
        if loss is None:
            return _Packet(passed)
        loss.count += 1
        loss.collateral += self._conversation.unanswered
        loss.active = False
        return _Packet(passed, then="go on" if loss.then == "silent" else loss.then)

    async def _write(self, direction: Direction) -> None:
        loop = asyncio.get_running_loop()
        while True:
            packet = await self._packets[direction].get()
            if (wait := packet.due - loop.time()) > 0:
                await asyncio.sleep(wait)
            await self._held(direction)
            if self._swallowed(direction):
                continue
            try:
                await self._deliver(direction, packet.data)
            except OSError:
                self.reset()
                return
            if packet.then != "go on":
                self._finish(direction, packet.then)
                return

    async def _held(self, direction: Direction) -> None:
        for rule in self._proxy.in_force(_Hold):
            if rule.covers(direction):
                rule.count += 1
                await rule.over.wait()

    def _swallowed(self, direction: Direction) -> bool:
        for rule in self._proxy.in_force(_Cut):
            if rule.covers(direction):
                rule.count += 1
                self.holes.add(direction)
        return direction in self.holes

    async def _deliver(self, direction: Direction, data: bytes) -> None:
        writer = self._into[direction]
        while data:
            drips = [rule for rule in self._proxy.in_force(_Drip) if rule.covers(direction)]
            size = min((rule.size for rule in drips), default=len(data))
            writer.write(data[:size])
            data = data[size:]
            await writer.drain()
            for rule in drips:
                rule.count += 1
                await asyncio.sleep(rule.interval)

    def _finish(self, direction: Direction, how: Literal["end", "reset", "close"]) -> None:
        if how == "reset":
            self.reset()
        elif how == "close":
            self._ended.set()
        else:
            writer = self._into[direction]
            if not writer.is_closing():
                with contextlib.suppress(OSError):  # the other end has gone already
                    writer.write_eof()
            self._running -= 1
            if not self._running:
                self._ended.set()


def _from_one(number: int) -> int:
    if number < 1:
        raise ValueError(f"expected 1 or more, got {number}")
    return number


def _bound(host: str, port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((host, port))
    return bound


def _abort(writer: asyncio.StreamWriter) -> None:
    """Close at once by RST (a unix socket, which has none, is just closed)."""
    if not writer.is_closing():
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
    writer.transport.abort()
