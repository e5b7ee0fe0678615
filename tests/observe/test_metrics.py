"""Metrics: the page that lists them, runners that share a registry, counters that never fall."""

from __future__ import annotations

import re
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from redis_cluster_kit import Cluster, Entity, Retry, Settings, ShardSettings, rpc
from redis_cluster_kit.observe import Readable, Reading, collector_of, metrics_page
from redis_cluster_kit.runtime import CronCounters, RuntimeCounters, SingletonCounters
from redis_cluster_kit.testing import until

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


class Account(Entity[None], name="account", retry=Retry(max_attempts=1)):
    @rpc
    async def ping(self) -> str:
        return "pong"

    @rpc
    async def fail(self) -> str:
        raise ZeroDivisionError


class Fixed(Readable):
    def __init__(self, namespace: str = "n", **values: Any) -> None:
        self.reading = Reading(namespace, **values)

    def read(self) -> Reading:
        return self.reading


def samples(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    """Every sample by name and namespace, as Prometheus would read them; one that comes twice is an error."""
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            beside = [f"{name}={value}" for name, value in sample.labels.items() if name != "namespace"]
            place = (" ".join([sample.name, *beside]), sample.labels["namespace"])
            assert place not in found, f"{place} comes twice"
            found[place] = sample.value
    return found


def test_the_reference_page_is_up_to_date() -> None:
    assert PAGE.read_text() == metrics_page(), "write observe.metrics_page() to docs/reference/metrics.md"


def test_the_reference_page_lists_what_is_shown() -> None:
    registry = CollectorRegistry()
    counters = SingletonCounters(errors=Counter({"StateLoadFailed": 1}))
    crons = {"nightly": CronCounters(skipped=Counter({"late": 1}))}
    collector_of(registry).add(
        Fixed(calls={"ask": 1}, singleton_counters={"coordinator": counters}, cron_counters=crons)
    )
    shown = {
        (family.name if family.type != "counter" else f"{family.name}_total", family.type)
        for family in text_string_to_metric_families(generate_latest(registry).decode())
    }
    listed = set(re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE))
    assert shown == listed
    asked_for = {"entities", "runners", "runners_healthy", "shards", "mailbox_messages", "dead_letters"}
    assert {f"rck_{name}" for name in asked_for} <= {name for name, _ in listed}


def test_nothing_has_a_label_for_each_entity() -> None:
    registry = CollectorRegistry()
    collector_of(registry).add(Fixed(calls={"ask": 1, "send": 2}))
    labels = {
        (name, value)
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
        for name, value in sample.labels.items()
        if name != "le"
    }
    assert labels == {("namespace", "n"), ("kind", "ask"), ("kind", "send")}


def test_runners_of_one_namespace_are_one_series() -> None:
    registry = CollectorRegistry()
    counters = [RuntimeCounters(commits=1), RuntimeCounters(commits=2)]
    for one in counters:
        one.waited(0.0007)
        collector_of(registry).add(
            Fixed(entities=3, runners=2, loop_lag_seconds=0.5, counters=one, calls={"ask": 1})
        )
    collector_of(registry).add(Fixed("other", entities=1))
    found = samples(registry)
    assert found["rck_entities", "n"] == 6
    assert found["rck_runners", "n"] == 2
    assert found["rck_loop_lag_seconds", "n"] == 0.5
    assert found["rck_commits_total", "n"] == 3
    assert found["rck_calls_total kind=ask", "n"] == 2
    assert found["rck_delivery_seconds_count", "n"] == 2
    assert found["rck_delivery_seconds_bucket le=0.0005", "n"] == 0
    assert found["rck_delivery_seconds_bucket le=0.001", "n"] == 2
    assert found["rck_delivery_seconds_bucket le=+Inf", "n"] == 2
    assert found["rck_delivery_seconds_sum", "n"] == pytest.approx(0.0014)
    assert found["rck_entities", "other"] == 1


def test_counters_do_not_fall_when_a_runner_leaves() -> None:
    registry, first = (
        CollectorRegistry(),
        Fixed(entities=3, counters=RuntimeCounters(commits=5), calls={"ask": 2}),
    )
    collector = collector_of(registry)
    collector.add(first)
    collector.remove(first)
    found = samples(registry)
    assert (found["rck_commits_total", "n"], found["rck_calls_total kind=ask", "n"]) == (5, 2)
    assert ("rck_entities", "n") not in found, "there is nobody whose memory it could be"
    collector.add(Fixed(counters=RuntimeCounters(commits=1), calls={"ask": 1}))
    found = samples(registry)
    assert (found["rck_commits_total", "n"], found["rck_calls_total kind=ask", "n"]) == (6, 3)


def test_an_empty_registry_and_one_collector_each() -> None:
    registry, other = CollectorRegistry(), CollectorRegistry()
    assert collector_of(registry) is collector_of(registry)
    assert collector_of(registry) is not collector_of(other)
    assert generate_latest(registry) == b""


async def test_two_clusters_in_one_process_scraped_from_another_thread(
    valkey: Any, sqlite_url: str, namespace: str
) -> None:
    registry, apart = CollectorRegistry(), CollectorRegistry()

    def make(namespace: str, registry: CollectorRegistry) -> Cluster:
        return Cluster(
            valkey.url,
            sqlite_url,
            namespace=namespace,
            entities=[Account],
            settings=Settings(shards=ShardSettings(per_group=8)),
            metrics_registry=registry,
        )

    first, second = make(namespace, registry), make(f"{namespace}-2", registry)
    third = make(f"{namespace}-3", apart)
    async with first, second, third:
        for cluster in (first, second, second, third):
            assert await cluster.entity(Account, "a").ping() == "pong"
        with pytest.raises(Exception, match="ZeroDivisionError"):
            await first.entity(Account, "a").fail()
        assert first.metrics_registry is registry
        scraped: list[dict[tuple[str, str], float]] = []
        failed: list[BaseException] = []
        over = threading.Event()

        def scrape() -> None:
            try:
                while not over.is_set():
                    scraped.append(samples(registry))
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=scrape)
        thread.start()
        for number in range(300):
            await first.entity(Account, f"id-{number % 50}").ping()
        over.set()
        thread.join()
        assert not failed
        assert len(scraped) > 3
        commits = [found["rck_commits_total", namespace] for found in scraped]
        assert commits == sorted(commits)
        found = samples(registry)
        assert found["rck_commits_total", namespace] == 301
        assert found["rck_commits_total", f"{namespace}-2"] == 2
        assert found["rck_failures_total", namespace] == found["rck_buried_total", namespace] == 1
        assert found["rck_shards", namespace] == 8
        assert found["rck_shards_missing", namespace] == found["rck_singletons_unhealthy", namespace] == 0
        assert found["rck_entities", namespace] == 51
        assert found["rck_runners", namespace] == found["rck_runners_healthy", namespace] == 1
        assert found["rck_delivery_seconds_count", namespace] >= 302
        assert found["rck_calls_total kind=ask", namespace] == 302
        assert {name for _, name in samples(apart)} == {f"{namespace}-3"}
        await until(lambda: samples(registry)["rck_dead_letters", namespace] == 1, timeout=20)
    assert samples(registry)["rck_commits_total", namespace] == 301, "after leaving too"
