"""The proxy's faults on a real server: each happens as often as its count says, and not otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, TypeAlias

import pytest
from redis.exceptions import ConnectionError as LostError
from redis.exceptions import TimeoutError as LateError

from redis_cluster_kit.testing import Proxy, command, until

Client: TypeAlias = Any
ClientOf: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]


async def test_without_rules_everything_passes(
    proxy: Proxy, client: Client, key: str, direct: Client
) -> None:
    big = b"x" * 3_000_000
    await client.set(key, big)
    assert await client.get(key) == big
    async with client.pipeline(transaction=True) as pipe:
        for number in range(300):
            pipe.echo(str(number))
        assert await pipe.execute() == [str(number).encode() for number in range(300)]
    assert proxy.fired == 0


async def _equals(awaitable: Awaitable[Any], value: Any) -> bool:
    return bool(await awaitable == value)


async def test_delay_holds_some_packets_for_a_time_in_its_range(proxy: Proxy, client: Client) -> None:
    await client.ping()
    with proxy.delay(0.03, 0.05, probability=0.5, seed=4, direction="to_client") as rule:
        times = [await _timed(client.ping()) for _ in range(20)]
    slow = [t for t in times if t >= 0.029]
    assert 3 <= rule.count <= len(slow)  # a busy machine may make others slow as well
    assert rule.count <= 17
    before = rule.count
    await client.ping()
    assert rule.count == before


async def test_the_share_of_held_packets_is_drawn_from_the_seed(proxy: Proxy) -> None:
    async def held_of(seed: int) -> list[int]:
        """One connection, one packet at a time: which were held is then the seed's choice alone."""
        reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
        held: list[int] = []
        with proxy.delay(0.001, 0.002, probability=0.5, seed=seed, direction="to_server") as rule:
            for number in range(40):
                before = rule.count
                writer.write(b"PING\r\n")
                assert await reader.readline() == b"+PONG\r\n"
                held += [number] if rule.count > before else []
        writer.close()
        return held

    first, again, other = await held_of(7), await held_of(7), await held_of(8)
    assert first == again != other
    assert 8 <= len(first) <= 32


async def _timed(awaitable: Awaitable[Any]) -> float:
    begin = time.monotonic()
    await awaitable
    return time.monotonic() - begin


@pytest.mark.parametrize("direction", ["to_server", "to_client", "both"])
async def test_a_cut_swallows_its_direction_and_heals_by_reset(
    proxy: Proxy,
    key: str,
    direct: Client,
    direction: Literal["to_server", "to_client", "both"],
    client_of: ClientOf,
) -> None:
    async with client_of(proxy.url(), socket_timeout=0.1, max_connections=1) as client:
        await client.ping()
        with proxy.cut(direction) as rule:
            with pytest.raises(LateError):
                await client.incr(key)
            # A swallowed packet cannot be waited for here, one that arrived can.
            if direction == "to_client":
                await until(lambda: _equals(direct.get(key), b"1"))
            assert await direct.get(key) == (b"1" if direction == "to_client" else None)
            assert rule.count >= 1
        await until(lambda: proxy.connections == 0)
        assert await client.incr(key) == (2 if direction == "to_client" else 1)


async def test_the_server_does_not_learn_that_a_client_went_away_behind_a_cut(
    proxy: Proxy, key: str, direct: Client, client_of: ClientOf
) -> None:
    async with client_of(proxy.url(), client_name=f"cut-{key[-8:]}") as client:
        await client.ping()
        rule = proxy.cut("to_server")
    await until(lambda: rule.count > 0)
    named = [c for c in await direct.client_list() if c["name"] == f"cut-{key[-8:]}"]
    assert len(named) == 1
    rule.lift()
    await until(lambda: proxy.connections == 0)


async def test_a_hole_is_never_jumped(proxy: Proxy, key: str, direct: Client) -> None:
    reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
    writer.write(f"INCR {key}\r\n".encode())
    assert await reader.readline() == b":1\r\n"
    with proxy.cut("to_client", on_lift="silent") as rule:
        writer.write(f"INCR {key}\r\n".encode())
        await until(lambda: rule.count == 1)
    writer.write(f"INCR {key}\r\n".encode())
    await until(lambda: _equals(direct.get(key), b"3"))
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.05)
    assert proxy.reset_all() == 1
    writer.close()


async def test_a_hold_delivers_late_but_everything(
    proxy: Proxy, client: Client, key: str, direct: Client
) -> None:
    await client.ping()
    async with asyncio.TaskGroup() as group:
        with proxy.hold() as rule:
            call = group.create_task(client.incr(key))
            await until(lambda: rule.count == 1)
            assert await direct.get(key) is None
            assert not call.done()
    assert call.result() == 1


async def test_reset_all_resets_every_connection(proxy: Proxy, key: str, direct: Client) -> None:
    streams = [await asyncio.open_connection(proxy.host, proxy.port) for _ in range(3)]
    await until(lambda: proxy.connections == 3)
    assert proxy.reset_all() == 3
    for reader, writer in streams:
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
    assert proxy.fired == 3
    await until(lambda: proxy.connections == 0)


async def test_a_refusing_port_is_closed_and_opens_again(proxy: Proxy, client: Client) -> None:
    await client.ping()
    with proxy.refuse() as rule:
        assert rule.count == 1
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(proxy.host, proxy.port)
        assert await client.ping()  # open connections live on
    _, writer = await asyncio.open_connection(proxy.host, proxy.port)
    writer.close()


async def test_refusing_by_reset_counts_the_refused(proxy: Proxy, client_of: ClientOf) -> None:
    with proxy.refuse("reset") as rule:
        for _ in range(3):
            async with client_of(proxy.url()) as client:
                with pytest.raises(LostError):
                    await client.ping()
        assert rule.count == 3
    async with client_of(proxy.url()) as client:
        assert await client.ping()


async def test_dripping_is_slow_and_complete(proxy: Proxy, client: Client, key: str, direct: Client) -> None:
    await direct.set(key, b"x" * 200)
    await client.ping()
    with proxy.drip(10, 0.002, direction="to_client") as rule:
        assert await _timed(client.get(key)) > 0.03
        assert rule.count == 21  # "$200\r\n" + 200 + "\r\n"
    assert await client.get(key) == b"x" * 200


async def test_a_client_that_resets_is_seen_by_the_server(
    proxy: Proxy, direct: Client, key: str, client_of: ClientOf
) -> None:
    async with client_of(proxy.url(), client_name=f"gone-{key[-8:]}") as client:
        await client.ping()

    async def gone() -> bool:
        return not any(c["name"] == f"gone-{key[-8:]}" for c in await direct.client_list())

    await until(gone)
    await until(lambda: proxy.connections == 0)


async def test_replication_passes_and_a_one_way_cut_makes_the_replica_lag(
    server: Any, second_server: Any, direct: Client, key: str, client_of: ClientOf
) -> None:
    async with (
        Proxy.to(server.host, server.port) as proxy,
        client_of(f"redis://{second_server.host}:{second_server.port}") as replica,
    ):
        await replica.replicaof(proxy.host, proxy.port)
        try:
            await direct.set(key, "before")
            await until(lambda: _equals(replica.get(key), b"before"))
            with proxy.cut("to_client") as rule:
                await direct.set(key, "after")
                await until(lambda: rule.count > 0)
                assert await replica.get(key) == b"before"
                await replica.replicaof("NO", "ONE")
            assert await replica.get(key) == b"before"
        finally:
            await replica.replicaof("NO", "ONE")
            await replica.flushall()


async def test_a_unix_socket_upstream_works(
    server: Any, key: str, direct: Client, client_of: ClientOf
) -> None:
    async with Proxy.to_unix(server.unix) as proxy, client_of(proxy.url()) as client:
        rule = proxy.lose_reply(command("INCRBY"))
        with pytest.raises(LostError):
            await client.incr(key)
        assert rule.count == 1
        assert await client.incr(key) == 2


async def test_plain_bytes_pass_unread_and_can_be_delayed_cut_and_reset() -> None:
    """An echo that does not speak RESP, as PostgreSQL does not."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1000):
                writer.write(data)
                await writer.drain()
        writer.close()

    upstream = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = upstream.sockets[0].getsockname()[1]
    async with upstream, Proxy.to("127.0.0.1", port, speaks="bytes") as proxy:
        reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
        writer.write(b"\x00\x01*3\r\nQ")
        assert await reader.readexactly(7) == b"\x00\x01*3\r\nQ"
        with proxy.delay(0.02, 0.03) as delay:
            writer.write(b"late")
            assert await _timed(reader.read(100)) > 0.02
        assert delay.count == 2
        with proxy.cut("to_server") as cut:
            writer.write(b"lost")
            await until(lambda: cut.count == 1)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()


async def test_a_server_that_is_down_resets_the_client_and_the_target_can_move(
    server: Any, client_of: ClientOf
) -> None:
    async with Proxy.to("127.0.0.1", 1) as proxy, client_of(proxy.url()) as client:
        with pytest.raises(LostError):
            await client.ping()
        proxy.retarget(server.host, server.port)
        assert await client.ping()


async def test_urls_keep_everything_but_the_address(proxy: Proxy) -> None:
    at = f"127.0.0.1:{proxy.port}"
    assert proxy.url() == f"redis://{at}"
    assert proxy.url("rediss://u:p%40w@example:1/3?x=1") == f"rediss://u:p%40w@{at}/3?x=1"
    assert proxy.url("postgresql+asyncpg://u@/db") == f"postgresql+asyncpg://u@{at}/db"


async def test_two_hundred_connections_leave_nothing_behind(proxy: Proxy) -> None:
    streams = [await asyncio.open_connection(proxy.host, proxy.port) for _ in range(200)]
    for _, writer in streams:
        writer.write(b"PING\r\n")
    for reader, writer in streams:
        assert await reader.readline() == b"+PONG\r\n"
        writer.close()
    await until(lambda: proxy.connections == 0)
