"""Keys: their slots as a real cluster computes them, their kinds, and the page that lists them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redis_cluster_kit.embedded import RedisClusterServers, RedisServer
from redis_cluster_kit.identity import ShardId, new_runner_id
from redis_cluster_kit.redis_access import KINDS, Keyspace, kind_of, reference_page

_names = st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True)
_shards = st.builds(ShardId, _names, st.integers(0, 99_999))
_partitions = st.integers(1, 300)
_ids = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=128)


def _keys(keyspace: Keyspace, shard: ShardId, name: str, id: str = "1") -> dict[str, str]:
    """One key of every kind."""
    partition, keys = keyspace.partition(shard), keyspace.of(shard)
    return {
        "record": keyspace.record,
        "members": keyspace.members,
        "alive": keyspace.alive,
        "version": keyspace.version,
        "born": keyspace.born,
        "machines": keyspace.machines,
        "probe": keyspace.probe,
        "lease": keyspace.lease(shard),
        "fence": keyspace.fence(shard),
        "inbox": keyspace.inbox(new_runner_id(name, "0123456789ab"), partition),
        "state": keyspace.state(shard, name),
        "singleton": keyspace.singleton(shard, name),
        "mailbox": keys.mailbox(f"{name}:{id}"),
        "entity": keys.entity(f"{name}:{id}"),
        "active": keys.active,
        "live": keys.live,
        "done": keys.done["k"]["done_b"],
        "scheduled": keys.scheduled,
        "later": keys.later,
        "outbox": keys.outbox,
        "dead": keys.dead,
        "kv": keyspace.values(partition),
    }


def test_every_kind_is_built_here() -> None:
    assert set(_keys(Keyspace("n", 4), ShardId("default", 1), "x")) == {kind.name for kind in KINDS}


@given(namespace=_names, partitions=_partitions, shard=_shards, name=_names, id=_ids)
def test_a_key_says_its_kind(namespace: str, partitions: int, shard: ShardId, name: str, id: str) -> None:
    for kind, key in _keys(Keyspace(namespace, partitions), shard, name, id).items():
        for found in (kind_of(key), kind_of(key.encode())):
            assert found is not None
            assert found.name == kind


@pytest.mark.parametrize(
    "key",
    [
        "",
        "rck",
        "other:{n:00}:record",
        "rck:{n:00}:record:more",
        "rck:{n:00}:lease",
        "rck:{n:00}:lease:default",
        "rck:{n:00}:lease:default:1:2",
        "rck:{n:00}:nosuch",
        "rck:{n:00}:mailbox:default:1",
        "rck:{n:00}:mailbox:default:1:Account",
        "rck:{n:00}:mailbox:default:1:Account:",
        "rck:{n:00}:done:default:1:g",
        "rck:{n:00}:active:default:1:Account:1",
        "rck:{n:0}:record",
        "rck:{n}:record",
        "rck:n:00:record",
        "rck:{n:00}:inbox:",
        "rck:{n:00}:record\n",
        b"rck:{n:00}:inbox:\xff\xfe",
        "xrck:{n:00}:record",
    ],
)
def test_what_is_no_key_of_ours(key: str | bytes) -> None:
    assert kind_of(key) is None


@given(namespace=_names, partitions=_partitions, shard=_shards, name=_names)
def test_the_keys_of_a_partition_share_its_tag(
    namespace: str, partitions: int, shard: ShardId, name: str
) -> None:
    keyspace = Keyspace(namespace, partitions)
    partition = keyspace.partition(shard)
    assert 0 <= partition < partitions
    tag = f"rck:{{{namespace}:{partition:02d}}}:"
    home = ("record", "members", "alive", "version", "born", "machines", "probe")
    for kind in set(_keys(keyspace, shard, name)) - set(home):
        assert _keys(keyspace, shard, name)[kind].startswith(tag)
    assert keyspace.slot(shard) == keyspace.slots[partition]
    assert keyspace.home_slot == keyspace.slots[0]


def test_slots_are_the_servers(valkey_cluster: RedisClusterServers) -> None:
    server = valkey_cluster.servers[0]
    with server.connect() as client:
        for namespace in ("n", "orders-prod", "a.b_c"):
            keyspace = Keyspace(namespace, 16)
            for number in range(16):
                shard = ShardId("default", number)
                expected = keyspace.slots[number]
                for key in (keyspace.lease(shard), keyspace.state(shard, "x"), keyspace.inbox("r", number)):
                    assert client.call("CLUSTER", "KEYSLOT", key) == expected
            assert client.call("CLUSTER", "KEYSLOT", keyspace.members) == keyspace.home_slot


@settings(max_examples=50)
@given(numbers=st.sets(st.integers(0, 999), max_size=200), partitions=_partitions, most=st.integers(1, 100))
def test_groups_for_one_script_each(numbers: set[int], partitions: int, most: int) -> None:
    keyspace = Keyspace("n", partitions)
    shards = [ShardId("default", number) for number in numbers]
    groups = keyspace.by_partition(shards, most)
    for partition, members in groups:
        assert 1 <= len(members) <= most
        assert {keyspace.partition(shard) for shard in members} == {partition}
    assert sorted(shard for _, members in groups for shard in members) == sorted(shards)


@pytest.mark.parametrize("bad", ["", "a b", "a:b", "a{b}", "*", "x" * 65])
def test_a_namespace_is_a_name(bad: str) -> None:
    with pytest.raises(ValueError, match="namespace"):
        Keyspace(bad, 16)


def test_the_pattern_finds_this_namespace_only(private_valkey: RedisServer) -> None:
    names = ["a-b", "a.b", "a-bc", "a_b", "ab"]
    for name in names:
        private_valkey.call("SET", Keyspace(name, 1).record, "x")
    for name in names:
        keyspace = Keyspace(name, 1)
        assert private_valkey.call("KEYS", keyspace.pattern()) == [keyspace.record]


def test_the_reference_page_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "keys.md"
    assert page.read_text() == reference_page(), (
        "write redis_access.reference_page() to docs/reference/keys.md"
    )


def test_the_reference_page_lists_every_kind() -> None:
    rows = re.findall(r"^\| `([a-z]+)[^`]*` \|", reference_page(), re.MULTILINE)
    assert rows == [kind.name for kind in KINDS]
    assert all(kind.permanent == kind.ttl.startswith("none") for kind in KINDS)
