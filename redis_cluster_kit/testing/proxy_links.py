"""One connection through the proxy: a reader and a writer for each direction, obeying the rules in force.

Bytes are never invented or reordered, and a direction that lost some passes none after them. Which
connections exist is the affair of `proxy`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass
from typing import Literal, TypeAlias

from .postgres_pairing import PostgresConversation
from .proxy_rules import Cut, Delay, Drip, Hold, Loss, RuleBook
from .resp_pairing import Conversation, Direction

Protocol: TypeAlias = Literal["resp", "postgres", "bytes"]
Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_DIRECTIONS: tuple[Direction, Direction] = ("to_server", "to_client")


@dataclass(slots=True)
class _Packet:
    """Bytes on their way: not before `due`, and what happens to the connection after them."""

    data: bytes
    due: float = 0.0
    then: Literal["go on", "end", "reset", "close"] = "go on"


class Link:
    """One client's connection and its twin to the server: a reader and a writer for each direction."""

    def __init__(self, rules: RuleBook, client: Streams, server: Streams, *, speaks: Protocol) -> None:
        self.holes: set[Direction] = set()
        """Directions that lost bytes."""
        self._rules = rules
        self._from = {"to_server": client[0], "to_client": server[0]}
        self._into = {"to_server": server[1], "to_client": client[1]}
        self._packets: dict[Direction, asyncio.Queue[_Packet]] = {d: asyncio.Queue(1024) for d in _DIRECTIONS}
        self._conversation = _conversation(speaks, rules)
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
            abort(writer)
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
                delays = self._rules.covering(Delay, direction)
                packet.due = loop.time() + sum(rule.draw() for rule in delays)
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
        for rule in self._rules.covering(Hold, direction):
            rule.count += 1
            await rule.over.wait()

    def _swallowed(self, direction: Direction) -> bool:
        for rule in self._rules.covering(Cut, direction):
            rule.count += 1
            self.holes.add(direction)
        return direction in self.holes

    async def _deliver(self, direction: Direction, data: bytes) -> None:
        writer = self._into[direction]
        while data:
            drips = self._rules.covering(Drip, direction)
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


def _conversation(
    speaks: Protocol, rules: RuleBook
) -> Conversation[Loss] | PostgresConversation[Loss] | None:
    if speaks == "resp":
        return Conversation(rules.losses)
    return PostgresConversation(rules.losses) if speaks == "postgres" else None


def abort(writer: asyncio.StreamWriter) -> None:
    """Close at once by RST (a unix socket, which has none, is just closed)."""
    if not writer.is_closing():
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
    writer.transport.abort()
