"""Several Redis servers that belong together: a cluster of masters, primary and replica, Sentinel.

Each part is a `RedisServer` that may be killed, paused or restarted by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from .processes import wait_until
from .redis_server import RedisServer
from .resp import RespError, parse_info

_SLOTS = 16_384
_READY_TIMEOUT = 20.0
_NOBODYS_PORT = 1  # tcpmux, which no system has run for decades: connections are refused
# Without the first a primary waits 5 s before it sends its data, and then up to one more, with the link "up",
# before it sends what is written meanwhile; without the second Valkey's replica looks only once a second
# whether the data has arrived.
_PROMPT_REPLICATION = ("--repl-diskless-sync", "no", "--repl-diskless-load", "swapdb")


class _Servers:
    """Servers that are stopped together."""

    def __init__(self, servers: Sequence[RedisServer]) -> None:
        self.servers = tuple(servers)

    def stop(self) -> None:
        """Stop every server. May be called again."""
        for server in reversed(self.servers):
            server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(map(repr, self.servers))}>"


class RedisClusterServers(_Servers):
    """Masters that share the slots of a Redis Cluster."""

    @classmethod
    def start(
        cls,
        masters: int = 3,
        *,
        binary: str | Path | None = None,
        node_timeout_ms: int = 5_000,
        extra: Sequence[str] = (),
    ) -> Self:
        """Start the masters, share the slots out evenly and wait until all agree (2 s, whatever one does)."""
        arguments = ("--cluster-node-timeout", str(node_timeout_ms), *extra)
        with ExitStack() as started:
            servers = [
                started.enter_context(RedisServer.start(binary=binary, cluster=True, extra=arguments))
                for _ in range(masters)
            ]
            _share_slots(servers)
            wait_until(
                lambda: all(_cluster_complete(server, masters) for server in servers),
                _READY_TIMEOUT,
                "the cluster to be complete",
            )
            started.pop_all()
        return cls(servers)

    @property
    def url(self) -> str:
        """`redis+cluster://` with every master: a client finds the cluster as long as one of them lives."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers)


class ReplicatedServers(_Servers):
    """A primary and its replica; the names stay with the servers, whatever their role becomes."""

    def __init__(self, primary: RedisServer, replica: RedisServer) -> None:
        super().__init__([primary, replica])
        self.primary = primary
        self.replica = replica

    @classmethod
    def start(
        cls,
        *,
        binary: str | Path | None = None,
        append_only: bool = False,
        extra: Sequence[str] = (),
    ) -> Self:
        """Start both and wait until the replica follows."""
        arguments = (*_PROMPT_REPLICATION, *extra)
        with ExitStack() as started:
            primary, replica = (
                started.enter_context(
                    RedisServer.start(binary=binary, append_only=append_only, extra=arguments)
                )
                for _ in range(2)
            )
            pair = cls(primary, replica)
            pair.follow(primary.port)
            started.pop_all()
        return pair

    @property
    def url(self) -> str:
        """The primary's."""
        return self.primary.url

    def follow(self, port: int) -> None:
        """Make the replica follow what listens on `port` (such as a proxy); returns when it does."""
        self.replica.call("REPLICAOF", "127.0.0.1", port)
        wait_until(lambda: _link_is_up(self.replica), _READY_TIMEOUT, "the replica to follow")

    def hold_back(self) -> None:
        """Cut the replica off with what it has: from now on it lags behind every write, until `catch_up`."""
        self.replica.call("REPLICAOF", "127.0.0.1", _NOBODYS_PORT)
        wait_until(lambda: not _link_is_up(self.replica), _READY_TIMEOUT, "the replica to be cut off")

    def catch_up(self) -> None:
        """Make the replica follow the primary again; returns when it has what the primary has now."""
        self.follow(self.primary.port)
        wanted = int(_replication(self.primary)["master_repl_offset"])
        wait_until(
            lambda: int(_replication(self.replica)["slave_repl_offset"]) >= wanted,
            _READY_TIMEOUT,
            "the replica to catch up",
        )

    def promote(self) -> RedisServer:
        """Make the replica a primary with what it has, and return it; the old primary is not told."""
        self.replica.call("REPLICAOF", "NO", "ONE")
        wait_until(
            lambda: _replication(self.replica).get("role") == "master",
            _READY_TIMEOUT,
            "the replica to be promoted",
        )
        return self.replica


class SentinelServers(_Servers):
    """A primary, its replica and the sentinels that watch them."""

    def __init__(self, pair: ReplicatedServers, sentinels: Sequence[RedisServer], master_name: str) -> None:
        super().__init__([*pair.servers, *sentinels])
        self.primary = pair.primary
        self.replica = pair.replica
        self.sentinels = tuple(sentinels)
        self.master_name = master_name

    @classmethod
    def start(
        cls,
        sentinels: int = 1,
        *,
        down_after_ms: int = 500,
        master_name: str = "main",
        binary: str | Path | None = None,
        append_only: bool = False,
    ) -> Self:
        """Start all and wait until every sentinel knows the replica and the other sentinels."""
        with ExitStack() as started:
            pair = started.enter_context(ReplicatedServers.start(binary=binary, append_only=append_only))
            watchers = [
                started.enter_context(RedisServer.start(binary=binary, extra=("--sentinel",)))
                for _ in range(sentinels)
            ]
            for watcher in watchers:
                _watch(watcher, pair.primary, master_name, sentinels // 2 + 1, down_after_ms)
            everyone = {"num-slaves": "1", "num-other-sentinels": str(sentinels - 1)}
            for watcher in watchers:
                wait_until(
                    _seen_by(watcher, master_name, everyone), _READY_TIMEOUT, f"a sentinel to see {everyone}"
                )
                watcher.call("SENTINEL", "DEBUG", "info-period", 10_000, "publish-period", 2_000)
            started.pop_all()
        return cls(pair, watchers, master_name)

    @property
    def url(self) -> str:
        """`redis+sentinel://` with every sentinel, the master's name and the database."""
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{self.master_name}/0"

    def master_port(self) -> int:
        """The port of the server that the first living sentinel names as master."""
        sentinel = next(sentinel for sentinel in self.sentinels if sentinel.alive)
        reply = sentinel.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.master_name)
        assert isinstance(reply, list)
        return int(str(reply[1]))


def _share_slots(servers: Sequence[RedisServer]) -> None:
    first = servers[0]
    for position, server in enumerate(servers):
        begin = position * _SLOTS // len(servers)
        end = (position + 1) * _SLOTS // len(servers) - 1
        with server.connect() as client:
            client.call("CLUSTER", "SET-CONFIG-EPOCH", position + 1)
            client.call("CLUSTER", "ADDSLOTSRANGE", begin, end)
        if server is not first:
            first.call("CLUSTER", "MEET", "127.0.0.1", server.port, server.bus_port)


def _cluster_complete(server: RedisServer, masters: int) -> bool:
    with server.connect() as client:
        info = parse_info(client.text("CLUSTER", "INFO"))
    return (info["cluster_state"], info["cluster_known_nodes"], info["cluster_size"]) == (
        "ok",
        str(masters),
        str(masters),
    )


def _replication(server: RedisServer) -> dict[str, str]:
    with server.connect() as client:
        return client.info("replication")


def _link_is_up(replica: RedisServer) -> bool:
    try:
        return _replication(replica).get("master_link_status") == "up"
    except RespError:  # LOADING, while it takes the primary's data in
        return False


def _watch(sentinel: RedisServer, primary: RedisServer, name: str, quorum: int, down_after_ms: int) -> None:
    with sentinel.connect() as client:
        # They meet each other within 0.2 s instead of 2, and the replica instead of 10, until all are known.
        client.call("SENTINEL", "DEBUG", "info-period", 100, "publish-period", 100)
        client.call("SENTINEL", "MONITOR", name, "127.0.0.1", primary.port, quorum)
        client.call(
            *("SENTINEL", "SET", name, "down-after-milliseconds", down_after_ms, "failover-timeout", 3_000)
        )


def _seen_by(sentinel: RedisServer, name: str, expected: dict[str, str]) -> Callable[[], bool]:
    def seen() -> bool:
        fields = sentinel.call("SENTINEL", "MASTER", name)
        assert isinstance(fields, list)
        found = {str(key): str(value) for key, value in zip(fields[::2], fields[1::2], strict=True)}
        return all(found.get(key) == value for key, value in expected.items())

    return seen
