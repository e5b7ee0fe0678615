"""A runner's inbox: what was read does not pile up, and a stream that was lost is read from its start."""

from __future__ import annotations

from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.testing import until

from .conftest import MakeCluster

SIZE = 200_000


async def test_what_was_read_does_not_pile_up(make_cluster: MakeCluster, valkey: RedisServer) -> None:
    async with make_cluster(hosting=False) as cluster:
        runner = cluster.joined_runner()
        inbox, partition = runner.messaging.inbox, runner.messaging.replies.place.partition
        key, heard = runner.keyspace.inbox(runner.runner_id, partition), list[bytes]()
        inbox.handlers[b"big"] = lambda fields: heard.append(fields[3])
        for _ in range(40):
            await inbox.post(runner.runner_id, partition, "k", "big", "b", b"x" * SIZE)
        await until(lambda: len(heard) == 40, what="all heard")
        assert {len(body) for body in heard} == {SIZE}

        def is_short() -> bool:
            length = valkey.call("XLEN", key)
            assert isinstance(length, int)
            return length * SIZE <= 2 * 1024 * 1024

        await until(is_short, what="a short stream")


async def test_a_lost_inbox_is_heard_again_whatever_time_the_server_has(
    make_cluster: MakeCluster, valkey: RedisServer
) -> None:
    """Entries are numbered by the server's time: one that lost the stream may begin earlier."""
    async with make_cluster(hosting=False) as cluster:
        runner = cluster.joined_runner()
        inbox, partition = runner.messaging.inbox, runner.messaging.replies.place.partition
        key, heard = runner.keyspace.inbox(runner.runner_id, partition), list[bytes]()
        inbox.handlers[b"x"] = lambda fields: heard.append(fields[3])
        valkey.call("XADD", key, "9999999999999-0", "k", "x", "n", "ahead")
        await until(lambda: heard == [b"ahead"], what="the first is heard")
        valkey.call("DEL", key)
        await until(lambda: valkey.call("EXISTS", key) == 1, what="the inbox is made again")
        await inbox.post(runner.runner_id, partition, "k", "x", "n", "behind")
        await until(lambda: heard == [b"ahead", b"behind"], what="the second is heard")
