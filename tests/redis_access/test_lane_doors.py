"""How lanes get in: passwords, users, databases, sockets, TLS, and doors that stay closed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest

from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.errors import Execution, PersistenceFailedError
from redis_cluster_kit.redis_access import Lanes, RedisUrl
from redis_cluster_kit.settings import RedisSettings
from redis_cluster_kit.testing import Proxy

PASSWORD = "p/w@d: ?%"


class TlsRedis(Protocol):
    """The fixture's value."""

    @property
    def url(self) -> str: ...
    @property
    def ca_path(self) -> Path: ...


async def _ask(url: str, *words: Any, settings: RedisSettings | None = None, retry_for: float = 5) -> Any:
    async with Lanes(RedisUrl.parse(url), settings or RedisSettings(), retry_for=retry_for) as lanes:
        return await lanes.call(0, *words)


async def _refusal(
    url: str, *words: Any, settings: RedisSettings | None = None, retry_for: float = 0
) -> PersistenceFailedError:
    with pytest.raises(PersistenceFailedError) as caught:
        await _ask(url, *(words or ("PING",)), settings=settings, retry_for=retry_for)
    assert caught.value.execution is Execution.NOT_EXECUTED
    assert "wrong-one" not in f"{caught.value} {caught.value!r} {caught.value.__cause__}"
    return caught.value


async def test_passwords_and_users() -> None:
    with RedisServer.start(password=PASSWORD) as server:
        here = f"127.0.0.1:{server.port}"
        assert await _ask(server.url, "PING") == b"PONG"
        wrong = await _refusal(f"redis://:wrong-one@{here}", retry_for=30)
        none = await _refusal(f"redis://{here}", retry_for=30)
        assert not wrong.is_retryable  # so it is said at once, not after 30 s
        assert not none.is_retryable
        assert "refused AUTH: WRONGPASS" in str(wrong)
        assert "refused CLIENT: NOAUTH" in str(none)
        with server.connect() as client:
            client.call("ACL", "SETUSER", "kit", "on", ">pw", "~*", "+@all", "-client")
        assert await _ask(f"redis://kit:pw@{here}", "ACL", "WHOAMI") == b"kit"  # without a name one can work
        assert not (await _refusal(f"redis://kit:wrong-one@{here}", retry_for=30)).is_retryable


async def test_a_server_without_auth_repeats_no_password() -> None:
    with RedisServer.start(extra=("--rename-command", "AUTH", "")) as server:
        for user in ("", "wrong-one"):
            error = await _refusal(f"redis://{user}:wrong-one@127.0.0.1:{server.port}")
            assert "unknown command 'AUTH'" in str(error)


async def test_a_unix_socket_with_a_password() -> None:
    with RedisServer.start(unix_socket=True, password=PASSWORD) as server:
        assert await _ask(server.url, "PING") == b"PONG"
        missing = await _refusal(f"unix://{server.folder}/nobody.sock")
        assert missing.is_retryable


async def test_databases(private_valkey: RedisServer) -> None:
    url = f"redis://127.0.0.1:{private_valkey.port}"
    await _ask(f"{url}/3", "SET", "x", "3")
    await _ask(f"{url}?db=4", "SET", "x", "4")
    assert await _ask(f"{url}/3", "GET", "x") == b"3"
    assert await _ask(f"{url}/0", "EXISTS", "x") == 0
    assert not (await _refusal(f"{url}/999", retry_for=30)).is_retryable


async def test_tls_is_verified(tls_redis: TlsRedis) -> None:
    trusted = RedisSettings(tls_ca=str(tls_redis.ca_path))
    assert await _ask(tls_redis.url, "PING", settings=trusted) == b"PONG"
    assert await _ask(tls_redis.url, "PING", settings=RedisSettings(tls_insecure=True)) == b"PONG"
    assert "certificate verify failed" in str(await _refusal(tls_redis.url))
    plain = await _refusal(tls_redis.url.replace("rediss://", "redis://"))
    assert plain.is_retryable  # the server hangs up; it might as well be restarting


async def test_a_certificate_of_another_name_is_refused(tls_redis: TlsRedis) -> None:
    """The authority is trusted and the address is right: only the name is not the certificate's."""
    trusted = RedisSettings(tls_ca=str(tls_redis.ca_path))
    url = tls_redis.url.replace("//localhost:", "//127.1:")  # resolves to 127.0.0.1, which the file does name
    refusal = await _refusal(url, settings=trusted)
    assert "certificate is not valid for '127.1'" in str(refusal)
    careless = RedisSettings(tls_ca=str(tls_redis.ca_path), tls_insecure=True)
    assert await _ask(url, "PING", settings=careless) == b"PONG"


async def test_a_server_without_tls_is_no_tls_server(valkey: RedisServer) -> None:
    settings = RedisSettings(tls_insecure=True, connect_timeout=timedelta(milliseconds=100))
    refusal = await _refusal(f"rediss://127.0.0.1:{valkey.port}", settings=settings)
    assert "did not answer within 0.1 s" in str(refusal)  # it waits for the end of the line


async def test_a_server_with_too_many_clients_is_tried_again(private_valkey: RedisServer) -> None:
    with private_valkey.connect() as client:
        client.call("CONFIG", "SET", "maxclients", 1)
        assert (await _refusal(private_valkey.url)).is_retryable
        call = asyncio.ensure_future(_ask(private_valkey.url, "PING"))
        await asyncio.wait([call], timeout=0.02)
        assert not call.done()
        client.call("CONFIG", "SET", "maxclients", 100)
        assert await call == b"PONG"


@dataclass
class _Babbler(asyncio.Protocol):
    """Answers whatever it is asked with the same bytes."""

    answer: bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(self.answer)


_NO_ANSWERS = {
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "more than was asked": b"+OK\r\n+OK\r\n+OK\r\n",
    "broken": b"*x\r\n",
    "a mapping with a list as key": b"%1\r\n*0\r\n:1\r\n",
    "nested too deep": b"*1\r\n" * 5_000,
}


@pytest.mark.parametrize("answer", _NO_ANSWERS.values(), ids=list(_NO_ANSWERS))
async def test_what_is_no_redis_server_is_noticed(answer: bytes) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Babbler(answer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with Lanes(RedisUrl.parse(f"redis://127.0.0.1:{port}"), RedisSettings(), retry_for=0) as lanes:
        calls = [lanes.call(0, "PING") for _ in range(5)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert "is lost: the server sent what is not an answer" in str(results[-1])
    server.close()
    await server.wait_closed()


async def test_a_door_that_resets_is_tried_again(private_valkey: RedisServer) -> None:
    async with Proxy.to("127.0.0.1", private_valkey.port) as proxy:
        rule = proxy.refuse("reset")
        call = asyncio.ensure_future(_ask(proxy.url(), "PING"))
        while rule.count < 3:
            await asyncio.sleep(0.001)
        rule.lift()
        assert await call == b"PONG"
