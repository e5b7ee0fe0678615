"""The doctor's judgement of servers, without servers: what real ones here would never say."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redis_cluster_kit.cli.doctor.database_checks import judge_database
from redis_cluster_kit.cli.doctor.finding import Finding
from redis_cluster_kit.cli.doctor.server_checks import judge_server
from redis_cluster_kit.cli.doctor.server_facts import ServerFacts
from redis_cluster_kit.storage import SCHEMA_VERSION, DatabaseFacts

TTL = timedelta(seconds=5)
GOOD = {
    "maxmemory-policy": "noeviction",
    "appendonly": "yes",
    "appendfsync": "always",
    "stream-node-max-bytes": "512",
}


def facts(**changes: object) -> ServerFacts:
    found = ServerFacts(
        "h:1", {"redis_version": "7.0.15", "used_memory": "100"}, dict(GOOD), latencies=[0.001]
    )
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def verdict(check: str, found: ServerFacts, *, has_database: bool = True) -> Finding:
    (finding,) = [
        one for one in judge_server(found, ttl=TTL, has_database=has_database) if one.check == check
    ]
    return finding


def test_all_is_well() -> None:
    assert {finding.verdict for finding in judge_server(facts(), ttl=TTL, has_database=False)} == {"ok"}


@pytest.mark.parametrize(
    ("version", "expected"),
    [("6.2.14", "problem"), ("7.0.0", "ok"), ("10.1", "ok"), ("", "warning"), ("unstable", "warning")],
)
def test_versions(version: str, expected: str) -> None:
    assert verdict("version", facts(info={"redis_version": version})).verdict == expected


@pytest.mark.parametrize(
    ("skew", "expected"), [(0.0, "ok"), (0.9, "ok"), (-1.5, "warning"), (3600, "warning")]
)
def test_clocks(skew: float, expected: str) -> None:
    assert verdict("clock", facts(skew=skew)).verdict == expected


@pytest.mark.parametrize(
    ("latencies", "expected"),
    [([0.001, 0.001, 2.0], "ok"), ([0.01] * 3, "warning"), ([0.6] * 3, "problem")],
)
def test_latencies(latencies: list[float], expected: str) -> None:
    assert verdict("latency", facts(latencies=latencies)).verdict == expected


@pytest.mark.parametrize(
    ("settings", "info", "has_database", "expected"),
    [
        ({"appendfsync": "everysec"}, {}, True, "ok"),
        ({"appendfsync": "everysec"}, {}, False, "problem"),
        ({"appendfsync": "no"}, {}, True, "warning"),
        ({"appendonly": "no"}, {}, True, "warning"),
        ({}, {"aof_last_write_status": "err"}, True, "problem"),
    ],
)
def test_persistence(
    settings: dict[str, str], info: dict[str, str], has_database: bool, expected: str
) -> None:
    found = facts(settings={**GOOD, **settings}, info=info)
    assert verdict("persistence", found, has_database=has_database).verdict == expected


def test_what_info_knows_without_config() -> None:
    info = {"maxmemory_policy": "volatile-ttl", "aof_enabled": "0"}
    found = facts(settings={}, info=info, refused={"CONFIG GET": "NOPERM"})
    assert verdict("eviction", found).verdict == "problem"
    assert verdict("persistence", found).verdict == "warning"
    assert verdict("inspection", found).verdict == "warning"


def test_memory_that_is_nearly_full() -> None:
    full = facts(info={"used_memory": "95", "maxmemory": "100"})
    assert verdict("memory", full).verdict == "warning"


def test_a_slow_database_is_too_slow_for_takeovers() -> None:
    settings = {"synchronous_commit": "on", "fsync": "on", "in_recovery": "false"}
    for seconds, expected in ((0.01, "ok"), (1.5, "problem")):
        found = judge_database(DatabaseFacts("postgresql", seconds, SCHEMA_VERSION, settings), "there", TTL)
        assert next(one.verdict for one in found if one.check == "database") == expected


def test_a_replica_cannot_be_written() -> None:
    settings = {"synchronous_commit": "off", "fsync": "on", "in_recovery": "true"}
    found = judge_database(DatabaseFacts("postgresql", 0.01, SCHEMA_VERSION, settings), "there", TTL)
    assert {one.check: one.verdict for one in found if one.verdict != "ok"} == {
        "writable": "problem",
        "durable commits": "warning",
    }
