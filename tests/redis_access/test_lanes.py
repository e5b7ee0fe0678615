"""Lanes on one server: callers share a connection, and a lost one leaves nobody guessing."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from redis_cluster_kit.embedded import RedisClusterServers, RedisServer
from redis_cluster_kit.errors import Execution, PersistenceFailedError
from redis_cluster_kit.redis_access import Keyspace, Lanes, RedisUrl
from redis_cluster_kit.redis_access.connection import Connection, Dialling, connect, pack
from redis_cluster_kit.redis_access.urls import Endpoint, Login
from redis_cluster_kit.settings import RedisSettings
from redis_cluster_kit.testing import Proxy, command, until

NOT, UNKNOWN = Execution.NOT_EXECUTED, Execution.UNKNOWN


@pytest.fixture
def keyspace(namespace: str) -> Keyspace:
    return Keyspace(namespace, 1)


@pytest.fixture
async def proxy(private_valkey: RedisServer) -> AsyncIterator[Proxy]:
    async with Proxy.to("127.0.0.1", private_valkey.port) as proxy:
        yield proxy


def lanes_to(url: str, **options: Any) -> Lanes:
    return Lanes(RedisUrl.parse(url), RedisSettings(), **options)


def clients(server: RedisServer, name: str = "rck-command") -> list[str]:
    """The server's connections with this name."""
    listed = str(server.call("CLIENT", "LIST"))
    return [line for line in listed.splitlines() if f" name={name} " in line]


def executions(results: Sequence[Any]) -> list[Execution]:
    assert all(isinstance(result, PersistenceFailedError) for result in results), results
    return [result.execution for result in results]


async def _gone(server: RedisServer) -> None:
    await until(lambda: not clients(server), what="every connection to be closed")


# --- Many callers, one connection ---


async def test_callers_share_one_connection_and_its_packets(
    private_valkey: RedisServer, keyspace: Keyspace
) -> None:
    def reads() -> int:
        with private_valkey.connect() as client:
            return int(client.info("stats")["total_reads_processed"])

    async with lanes_to(private_valkey.url) as lanes:
        await lanes.call(0, "PING")
        before = reads()
        calls = [lanes.call(0, "ECHO", number) for number in range(200)]
        assert await asyncio.gather(*calls) == [b"%d" % number for number in range(200)]
        assert reads() - before < 20
        assert len(clients(private_valkey)) == 1
    await _gone(private_valkey)


async def test_callers_that_come_before_the_connection_share_it_too(private_valkey: RedisServer) -> None:
    async with lanes_to(private_valkey.url) as lanes:
        await asyncio.gather(*(lanes.call(slot, "PING") for slot in range(200)))
        assert len(clients(private_valkey)) == 1
        with private_valkey.connect() as client:
            assert int(client.info("stats")["total_connections_received"]) < 20


async def test_each_role_has_connections_of_its_own(private_valkey: RedisServer) -> None:
    async with (
        lanes_to(private_valkey.url, role="lease") as leases,
        lanes_to(private_valkey.url, role="command") as commands,
        lanes_to(private_valkey.url, role="reader") as readers,
    ):
        blocked = asyncio.ensure_future(readers.call(0, "BLPOP", "nothing", 0))
        await asyncio.gather(leases.call(0, "PING"), commands.call(0, "PING"))
        await until(lambda: len(clients(private_valkey, "rck-reader")) == 1)
        assert len(clients(private_valkey, "rck-lease")) == 1
        blocked.cancel()


async def test_large_and_small_answers_find_their_callers(valkey: RedisServer, keyspace: Keyspace) -> None:
    rng = random.Random(7)
    sizes = [rng.choice((0, 1, 100, 10_000, 300_000)) for _ in range(40)]
    async with lanes_to(valkey.url) as lanes:
        replies = await asyncio.gather(*(lanes.call(0, "ECHO", b"%d" % n * n) for n in sizes))
    assert replies == [b"%d" % n * n for n in sizes]


# --- Cancelled callers ---


async def test_a_cancelled_caller_leaves_the_connection_as_it_was(proxy: Proxy, keyspace: Keyspace) -> None:
    async with lanes_to(proxy.url()) as lanes:
        connection = await lanes.call(0, "CLIENT", "ID")
        with proxy.hold("to_client") as held:
            calls = [asyncio.ensure_future(lanes.call(0, "ECHO", number)) for number in range(100)]
            counted = asyncio.ensure_future(lanes.call(0, "INCR", keyspace.born))
            await asyncio.sleep(0)  # they have been sent now
            for call in (*calls[::2], counted):
                call.cancel()
            await until(lambda: held.count)
        assert await asyncio.gather(*calls[1::2]) == [b"%d" % number for number in range(1, 100, 2)]
        assert all(call.cancelled() for call in calls[::2])
        assert await lanes.call(0, "CLIENT", "ID") == connection
        assert await lanes.call(0, "GET", keyspace.born) == b"1"  # cancelling takes nothing back


async def test_cancelling_whoever_opens_the_connection_leaves_the_others_served(proxy: Proxy) -> None:
    async with lanes_to(proxy.url()) as lanes:
        with proxy.hold("to_client"):
            calls = [asyncio.ensure_future(lanes.call(0, "ECHO", number)) for number in range(5)]
            await until(lambda: proxy.connections)
            calls[0].cancel()
        assert await asyncio.gather(*calls[1:]) == [b"1", b"2", b"3", b"4"]


# --- Commands nobody waits for ---


async def test_what_is_sent_without_waiting_arrives(private_valkey: RedisServer, keyspace: Keyspace) -> None:
    async with lanes_to(private_valkey.url) as lanes:
        lanes.send(0, "INCR", keyspace.born)  # opens the connection
        await until(lambda: private_valkey.call("GET", keyspace.born) == "1")
        lanes.send(0, "NOSUCHCOMMAND")
        for _ in range(99):
            lanes.send(0, "INCR", keyspace.born)
        assert await lanes.call(0, "GET", keyspace.born) == b"100"
        assert not lanes._sending
    lanes.send(0, "INCR", keyspace.born)  # closed: nobody hears
    assert private_valkey.call("GET", keyspace.born) == "100"


async def test_closing_ends_what_is_being_sent(proxy: Proxy) -> None:
    before = asyncio.all_tasks()
    lanes = lanes_to(proxy.url(), retry_for=30)
    with proxy.refuse():
        lanes.send(0, "PING")
        await asyncio.sleep(0.01)
        assert lanes._sending
        async with asyncio.timeout(10):
            await lanes.close()
    assert asyncio.all_tasks() <= before


# --- Lost connections ---


@pytest.mark.parametrize(("repeat", "value"), [(False, "1"), (True, "2")])
async def test_a_lost_reply_is_unknown_unless_it_may_be_repeated(
    proxy: Proxy, private_valkey: RedisServer, keyspace: Keyspace, repeat: bool, value: str
) -> None:
    async with lanes_to(proxy.url()) as lanes:
        loss = proxy.lose_reply(command("INCR"))
        call = lanes.call(0, "INCR", keyspace.born, repeat=repeat)
        result: Any = (await asyncio.gather(call, return_exceptions=True))[0]
        loss.assert_fired(1)
        assert result == 2 if repeat else executions([result]) == [UNKNOWN]
        assert private_valkey.call("GET", keyspace.born) == value
        assert await lanes.call(0, "PING") == b"PONG"


async def test_a_lost_command_is_unknown_too(
    proxy: Proxy, private_valkey: RedisServer, keyspace: Keyspace
) -> None:
    async with lanes_to(proxy.url()) as lanes:
        proxy.lose_command(command("INCR"))
        with pytest.raises(PersistenceFailedError) as caught:
            await lanes.call(0, "INCR", keyspace.born)
        proxy.assert_fired()
    assert caught.value.execution is UNKNOWN
    assert caught.value.is_retryable
    assert private_valkey.call("EXISTS", keyspace.born) == 0


async def test_every_pending_caller_hears_of_a_killed_connection(private_valkey: RedisServer) -> None:
    async with lanes_to(private_valkey.url) as lanes:
        first = await lanes.call(0, "CLIENT", "ID")
        blocking = asyncio.ensure_future(lanes.call(0, "BLPOP", "nothing", 0))
        behind = [asyncio.ensure_future(lanes.call(0, "PING", repeat=n % 2 == 1)) for n in range(10)]
        await until(lambda: "cmd=blpop" in clients(private_valkey)[0])
        assert private_valkey.call("CLIENT", "KILL", "ID", first) == 1
        results = await asyncio.gather(blocking, *behind, return_exceptions=True)
        assert executions([results[0], *results[1::2]]) == [UNKNOWN] * 6
        assert results[2::2] == [b"PONG"] * 5
        assert await lanes.call(0, "CLIENT", "ID") != first


async def test_what_was_never_written_did_not_run(private_valkey: RedisServer, keyspace: Keyspace) -> None:
    """A server that reads nothing: what fits into the buffers may run, what is behind surely does not."""
    connection = await _connect(private_valkey, stall_timeout=30)
    private_valkey.pause()
    pending: list[asyncio.Future[Any]] = []
    for _ in range(40):
        pending.append(connection.submit(pack(("ECHO", b"x" * 1_000_000))))
        await asyncio.sleep(0)
    connection.abort("enough")
    found = executions(await asyncio.gather(*pending, return_exceptions=True))
    assert found == sorted(found, key=lambda execution: execution is NOT)
    assert {found[0], found[-1]} == {UNKNOWN, NOT}
    with pytest.raises(PersistenceFailedError) as caught:
        connection.submit(pack(("PING",)))
    assert caught.value.execution is NOT
    private_valkey.resume()


async def test_what_was_submitted_in_the_turn_of_the_loss_did_not_run(private_valkey: RedisServer) -> None:
    connection = await _connect(private_valkey)
    pending = connection.submit(pack(("SET", "x", "1")))
    await connection.close()
    with pytest.raises(PersistenceFailedError, match="closed by this side") as caught:
        await pending
    assert caught.value.execution is NOT
    assert private_valkey.call("EXISTS", "x") == 0


async def test_a_retired_connection_still_brings_what_it_owes(private_valkey: RedisServer) -> None:
    connection, idle = await _connect(private_valkey), await _connect(private_valkey)
    owed = connection.submit(pack(("BLPOP", "list", 0)))
    await until(lambda: any("cmd=blpop" in client for client in clients(private_valkey, "rck")))
    connection.retire()
    idle.retire()
    assert idle.is_lost
    assert not connection.is_lost
    private_valkey.call("RPUSH", "list", "at last")
    assert await owed == [b"list", b"at last"]
    await until(lambda: not clients(private_valkey, "rck"))


async def _connect(server: RedisServer, stall_timeout: float = 2.0) -> Connection:
    dialling = Dialling(2.0, stall_timeout, Login())
    return await connect(Endpoint("127.0.0.1", server.port), dialling)


async def test_a_server_that_comes_back_is_found_again(
    private_valkey: RedisServer, keyspace: Keyspace
) -> None:
    private_valkey.kill()
    async with lanes_to(private_valkey.url) as lanes:
        calls = [asyncio.ensure_future(lanes.call(0, "INCR", keyspace.born)) for _ in range(20)]
        await asyncio.wait(calls, timeout=0.02)
        assert not any(call.done() for call in calls)
        private_valkey.restart()
        assert sorted(await asyncio.gather(*calls)) == list(range(1, 21))


async def test_a_server_that_stays_away_is_reported_in_time(private_valkey: RedisServer) -> None:
    async with lanes_to(private_valkey.url, retry_for=0.1) as lanes:
        private_valkey.kill()
        results = await asyncio.gather(
            *(lanes.call(0, "PING", repeat=n % 2 == 1) for n in range(20)), return_exceptions=True
        )
        assert executions(results) == [NOT] * 20
        assert all("cannot connect to 127.0.0.1" in str(result) for result in results)


async def test_doubt_about_the_first_attempt_stays_over_later_ones(proxy: Proxy, keyspace: Keyspace) -> None:
    """The reply is lost, and nobody can connect again: that later attempts did not run says nothing."""
    async with lanes_to(proxy.url(), retry_for=0.1) as lanes:
        await lanes.call(0, "PING")
        loss = proxy.lose_reply(command("INCR"))
        with proxy.refuse(), pytest.raises(PersistenceFailedError, match="cannot connect") as caught:
            await lanes.call(0, "INCR", keyspace.born, repeat=True)
        loss.assert_fired(1)
        assert caught.value.execution is UNKNOWN
        assert await lanes.call(0, "GET", keyspace.born) == b"1"


async def test_callers_of_a_silent_server_wait_together_not_one_after_the_other(proxy: Proxy) -> None:
    settings = RedisSettings(connect_timeout=timedelta(milliseconds=200))
    async with Lanes(RedisUrl.parse(proxy.url()), settings, retry_for=0) as lanes:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        with proxy.cut():
            results = await asyncio.gather(
                *(lanes.call(0, "PING") for _ in range(50)), return_exceptions=True
            )
        assert executions(results) == [NOT] * 50
        assert loop.time() - begin < 5.0  # 50 attempts one after the other take 10 s
        assert await lanes.call(0, "PING") == b"PONG"


# --- Stalled servers ---


async def test_a_stalled_server_is_noticed(private_valkey: RedisServer, keyspace: Keyspace) -> None:
    async with lanes_to(private_valkey.url, stall_timeout=0.4, retry_for=20) as lanes:
        await lanes.call(0, "PING")
        private_valkey.pause()
        once = asyncio.ensure_future(lanes.call(0, "SET", keyspace.born, "1"))
        repeated = asyncio.ensure_future(lanes.call(0, "GET", keyspace.born, repeat=True))
        with pytest.raises(PersistenceFailedError, match=r"no answer for 0\.4 s") as caught:
            await once
        assert caught.value.execution is UNKNOWN
        assert not repeated.done()
        private_valkey.resume()
        assert await repeated == b"1"


async def test_a_slow_answer_is_no_stall(proxy: Proxy) -> None:
    async with lanes_to(proxy.url(), stall_timeout=0.4, retry_for=0) as lanes:
        loop = asyncio.get_running_loop()
        await lanes.call(0, "PING")
        begin = loop.time()
        with proxy.drip(100, 0.015, direction="to_client") as drip:
            assert await lanes.call(0, "ECHO", b"x" * 4000) == b"x" * 4000
        drip.assert_fired()
        assert loop.time() - begin > 0.5


async def test_silence_is_no_stall_while_nothing_is_owed(private_valkey: RedisServer) -> None:
    loop = asyncio.get_running_loop()
    async with lanes_to(private_valkey.url, stall_timeout=0.4) as lanes:
        first, begin = await lanes.call(0, "CLIENT", "ID"), loop.time()
        await until(lambda: loop.time() > begin + 0.6)
        assert await lanes.call(0, "CLIENT", "ID") == first


async def test_a_loop_that_was_held_up_is_not_the_servers_silence(private_valkey: RedisServer) -> None:
    """Submitted, then a handler blocks the loop: nothing has been written yet, so nothing is late."""
    async with lanes_to(private_valkey.url, stall_timeout=0.5, retry_for=0) as lanes:
        first = await lanes.call(0, "CLIENT", "ID")
        call = asyncio.ensure_future(lanes.call(0, "CLIENT", "ID"))
        asyncio.get_running_loop().call_soon(time.sleep, 0.7)
        assert await call == first


async def test_a_host_that_was_held_up_is_not_the_servers_silence(private_valkey: RedisServer) -> None:
    """Both stood still while an answer was owed, as in a suspended virtual machine; both go on."""
    loop = asyncio.get_running_loop()
    async with lanes_to(private_valkey.url, stall_timeout=0.5, retry_for=0) as lanes:
        first = await lanes.call(0, "CLIENT", "ID")
        private_valkey.pause()
        call = asyncio.ensure_future(lanes.call(0, "CLIENT", "ID"))
        await asyncio.sleep(0.01)  # written
        loop.call_later(0.6, private_valkey.resume)  # due after the stall's end: runs after it, too
        loop.call_soon(time.sleep, 0.9)
        assert await call == first


async def test_a_stall_counts_from_the_write_also_after_the_loop_was_held_up(
    private_valkey: RedisServer,
) -> None:
    async with lanes_to(private_valkey.url, stall_timeout=0.3, retry_for=0) as lanes:
        await lanes.call(0, "PING")
        private_valkey.pause()
        call = asyncio.ensure_future(lanes.call(0, "PING"))
        asyncio.get_running_loop().call_soon(time.sleep, 0.5)
        with pytest.raises(PersistenceFailedError, match=r"no answer for 0\.3 s") as caught:
            await call
        assert caught.value.execution is UNKNOWN
        private_valkey.resume()


async def test_the_system_looks_after_a_connection_that_owes_nothing(private_valkey: RedisServer) -> None:
    connection = await _connect(private_valkey)
    assert connection._transport is not None
    server = connection._transport.get_extra_info("socket")
    assert server.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert server.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
    assert server.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    await connection.close()


# --- Closing ---


async def test_closing_leaves_nothing_pending(private_valkey: RedisServer) -> None:
    lanes = lanes_to(private_valkey.url)
    calls = [asyncio.ensure_future(lanes.call(0, "BLPOP", "nothing", 0, repeat=True)) for _ in range(10)]
    await until(lambda: any("cmd=blpop" in client for client in clients(private_valkey)))
    async with asyncio.timeout(1):
        await lanes.close()
        assert executions(await asyncio.gather(*calls, return_exceptions=True)) == [UNKNOWN] * 10
    with pytest.raises(PersistenceFailedError, match="lanes are closed") as caught:
        await lanes.call(0, "PING")
    assert caught.value.execution is NOT
    with pytest.raises(PersistenceFailedError, match="lanes are closed"):
        await lanes.call_each_master("PING")
    await lanes.close()
    await _gone(private_valkey)


async def test_a_close_that_is_cancelled_leaves_no_connection_open(
    valkey_cluster: RedisClusterServers,
) -> None:
    lanes = lanes_to(valkey_cluster.url, role="reader")
    for slot in (0, 8000, 16000):  # one lane to each master
        await lanes.call(slot, "CLUSTER", "MYID")
    opened = [len(clients(server, "rck-reader")) for server in valkey_cluster.servers]
    assert opened == [1, 1, 1]
    closing = asyncio.ensure_future(lanes.close())
    await asyncio.sleep(0)  # it waits for its first socket now
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()
    await until(lambda: not any(clients(server, "rck-reader") for server in valkey_cluster.servers))


async def test_closing_ends_the_opening_of_a_connection(proxy: Proxy, private_valkey: RedisServer) -> None:
    lanes = lanes_to(proxy.url(), retry_for=30)
    with proxy.hold("to_client"):
        calls = [asyncio.ensure_future(lanes.call(0, "PING")) for _ in range(10)]
        await until(lambda: clients(private_valkey))
        async with asyncio.timeout(1):  # opening may take 2 s
            await lanes.close()
            assert executions(await asyncio.gather(*calls, return_exceptions=True)) == [NOT] * 10
    await _gone(private_valkey)
    await until(lambda: not proxy.connections)


async def test_closing_ends_the_search_for_a_server(proxy: Proxy) -> None:
    lanes = lanes_to(f"redis+cluster://127.0.0.1:{proxy.port}", retry_for=30)
    with proxy.hold("to_client"):
        call = asyncio.ensure_future(lanes.call(0, "PING"))
        await until(lambda: proxy.connections)
        async with asyncio.timeout(1):
            await lanes.close()
            assert executions(await asyncio.gather(call, return_exceptions=True)) == [NOT]
    await until(lambda: not proxy.connections)
