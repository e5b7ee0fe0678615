"""TLS servers: Debian's `redis-server` with certificates of a throw-away authority."""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path
from typing import Protocol

import pytest

from redis_cluster_kit.embedded import RedisServer, RespClient, ServerNotInstalledError, make_tls_files


class TlsRedis(Protocol):
    """What the fixture `tls_redis` gives."""

    server: RedisServer
    ca_path: Path
    url: str


def test_client_that_trusts_the_authority_is_served(tls_redis: TlsRedis) -> None:
    assert tls_redis.url == f"rediss://localhost:{tls_redis.server.port}"
    trusting = ssl.create_default_context(cafile=str(tls_redis.ca_path))
    for host in ("127.0.0.1", "localhost"):
        with RespClient(host, tls_redis.server.port, tls=trusting) as client:
            assert client.call("PING") == "PONG"


def test_client_that_does_not_trust_the_authority_stops(tls_redis: TlsRedis) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="self-signed"):
        RespClient("localhost", tls_redis.server.port, tls=ssl.create_default_context())


def test_client_without_tls_is_not_served(tls_redis: TlsRedis) -> None:
    with socket.create_connection(("127.0.0.1", tls_redis.server.port), timeout=2) as plain:
        plain.sendall(b"PING\r\n")
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            answer = plain.recv(100)
        assert answer == b""


def test_certificate_of_another_host_and_client_certificates(tls_redis: TlsRedis, tmp_path: Path) -> None:
    files = make_tls_files(tmp_path, names=["elsewhere.example"], client_certificates=True)
    with RedisServer.start(binary="redis-server", tls=files) as server:
        assert server.call("PING") == "PONG"
        assert server.url == f"rediss://127.0.0.1:{server.port}/0"
        with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
            RespClient("127.0.0.1", server.port, tls=files.client_context())
        unnamed = ssl.create_default_context(cafile=str(files.authority))
        unnamed.check_hostname = False
        # With TLS 1.3 the client hears of it only when it reads.
        with (
            pytest.raises((ssl.SSLError, ConnectionError)),
            RespClient("127.0.0.1", server.port, tls=unnamed) as nobody,
        ):
            nobody.call("PING")


def test_missing_openssl_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerNotInstalledError, match="apt-get install openssl"):
        make_tls_files(tmp_path)
