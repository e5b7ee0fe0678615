"""A TCP proxy in front of a real server that loses, delays, cuts, resets, refuses and drips on demand.

Faults are rules, set and lifted while it runs; each counts what it really did, so that a test can prove
its fault happened. To aim at one command it reads RESP, or PostgreSQL's protocol; other bytes (TLS) it moves
unread.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Literal, Self
from urllib.parse import urlsplit

from .proxy_links import Link, Protocol, Streams, abort
from .proxy_rules import After, Cut, Delay, Drip, Hold, Loss, Refusal, Rule, RuleBook, Way
from .resp_pairing import Match

__all__ = ["Proxy"]


class Proxy:
    """`async with Proxy.to(host, port) as proxy:` listens on `proxy.port` and passes everything on."""

    def __init__(
        self, connect: Callable[[], Coroutine[None, None, Streams]], *, speaks: Protocol = "resp"
    ) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self.speaks: Protocol = speaks
        self._rules = RuleBook()
        self._connect = connect
        self._links: set[Link] = set()
        self._place: socket.socket | None = None
        self._door: socket.socket | None = None
        self._group = asyncio.TaskGroup()
        self._serving: set[asyncio.Task[None]] = set()

    @classmethod
    def to(cls, host: str, port: int, *, speaks: Protocol = "resp") -> Self:
        """Stand in front of a TCP server that speaks `resp`, `postgres`, or anything (`bytes`)."""
        return cls(lambda: asyncio.open_connection(host, port), speaks=speaks)

    @classmethod
    def to_unix(cls, path: str, *, speaks: Protocol = "resp") -> Self:
        """Stand, on a TCP port, in front of a server on a unix socket."""
        return cls(lambda: asyncio.open_unix_connection(path), speaks=speaks)

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
    def rules(self) -> list[Rule]:
        """Every rule ever set, lifted ones too."""
        return self._rules.all

    @property
    def fired(self) -> int:
        """How many faults really happened, over all rules."""
        return sum(rule.count for rule in self.rules)

    def assert_fired(self) -> None:
        """Raise unless there were rules and every one of them really happened."""
        if not self.rules:
            raise AssertionError("expected a fault to have happened, but no rule was ever set")
        for rule in self.rules:
            rule.assert_fired()

    @property
    def connections(self) -> int:
        """How many client connections are open now."""
        return len(self._links)

    def lose_reply(self, match: Match, *, nth: int = 1, then: After = "reset", errors: bool = False) -> Loss:
        """Let the nth matching command run and lose its reply; earlier replies arrive, no later ones.

        Then the connection is `reset`, closed (`close`) or stays open and dead (`silent`). A command that the
        server answered with an error (NOSCRIPT) is passed over for the next match, unless `errors=True`.
        Inside a transaction aim at EXEC: the replies before it only say QUEUED. For SQL match `statement`s.
        """
        return self._lose(Loss("reply", match, nth, then, errors))

    def lose_command(self, match: Match, *, nth: int = 1, then: After = "reset") -> Loss:
        """Lose the nth matching command itself: the client cannot tell this from a lost reply."""
        return self._lose(Loss("command", match, nth, then, errors=True))

    def delay(
        self, low: float, high: float, *, probability: float = 1.0, seed: int = 0, direction: Way = "both"
    ) -> Rule:
        """Hold packets, each with this probability, for a random time in the range; order is kept."""
        return self._rules.add(Delay(direction, low, high, probability, seed))

    def cut(self, direction: Way = "both", *, on_lift: Literal["reset", "silent"] = "reset") -> Rule:
        """Swallow bytes, and ends of connections too, while the connections stay open.

        A connection that lost bytes cannot go on: lifting resets it, or leaves it open and dead (`silent`).
        """
        heal = self._reset_holed if on_lift == "reset" else None
        return self._rules.add(Cut(direction, heal))

    def hold(self, direction: Way = "both") -> Rule:
        """Let nothing through until lifted, then everything: a partition that TCP outlives."""
        return self._rules.add(Hold(direction))

    def drip(self, size: int = 1, interval: float = 0.001, *, direction: Way = "both") -> Rule:
        """Pass only `size` bytes every `interval` seconds, on each connection."""
        return self._rules.add(Drip(direction, size, interval))

    def reset_all(self) -> int:
        """Reset every open connection, both ends, by RST; return how many."""
        rule = self._rules.add(Rule("reset"))
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
        rule = self._rules.add(Refusal(how, self._admit))
        if how == "closed":
            self._close_door()
            try:
                socket.create_connection((self.host, self.port), timeout=1).close()
            except ConnectionRefusedError:
                rule.count += 1
        return rule

    def _lose(self, loss: Loss) -> Loss:
        if self.speaks == "bytes":
            raise ValueError("expected a proxy that reads what passes: in plain bytes there are no commands")
        return self._rules.add(loss)

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
        if self._door is None and not any(rule.how == "closed" for rule in self._rules.in_force(Refusal)):
            self._open_door()

    def _accept(self, door: socket.socket) -> None:
        try:
            client, _ = door.accept()
        except (BlockingIOError, ConnectionAbortedError):  # the client has already gone again
            return
        refusals = self._rules.in_force(Refusal)
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
            abort(client[1])
            return
        except asyncio.CancelledError:
            abort(client[1])
            raise
        link = Link(self._rules, client, server, speaks=self.speaks)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)


def _bound(host: str, port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((host, port))
    return bound
