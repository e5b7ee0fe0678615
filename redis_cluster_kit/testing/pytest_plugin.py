"""For pytest: the option `--rck-seed` with the fixture `rck_seeds`, whose seed a failing test's report shows;
and the fixture `rck_pods`, which starts clusters of several pods.

Load it with `-p redis_cluster_kit.testing.pytest_plugin`. The option goes before `RCK_SEED`; without either
each run draws a fresh seed, the same for all its tests.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from .pods import Pods, local_cluster
from .seeds import Seeds, parse_seed

_SEEDS = pytest.StashKey[Seeds]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--rck-seed`."""
    parser.getgroup("redis_cluster_kit").addoption(
        "--rck-seed", default="", help="the number all randomness of fault tests is drawn from (or RCK_SEED)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Settle the run's seed."""
    text = str(config.getoption("--rck-seed"))
    try:
        config.stash[_SEEDS] = Seeds(parse_seed(text, "--rck-seed")) if text else Seeds.from_env()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.fixture
def rck_seeds(request: pytest.FixtureRequest) -> Seeds:
    """The run's seeds: `rck_seeds.random("nemesis")`."""
    return request.config.stash[_SEEDS]


@pytest.fixture
async def rck_pods() -> AsyncGenerator[Callable[..., Awaitable[Pods]]]:
    """Starts a local cluster: `pods = await rck_pods(pods=3, entities=[Account])`; it ends with the test."""
    async with AsyncExitStack() as stack:

        async def start(pods: int = 3, **options: Any) -> Pods:
            return await stack.enter_async_context(local_cluster(pods, **options))

        yield start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the seed in the report of a failed test that used it."""
    report = yield
    if report.failed and "rck_seeds" in getattr(item, "fixturenames", ()):
        report.sections.append(("seed", item.config.stash[_SEEDS].hint))
    return report
