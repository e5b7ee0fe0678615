"""Programs killed before every line and around every call of a store: the next pod brings them to one end.

`examples/orders` and the coordinator of the documentation run as they are, in pods that kill themselves where
they are told to. Which pass of a line kills is drawn from the seed; with `--long` all of them do.
"""

from __future__ import annotations

from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from examples.orders import orders
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.testing import Seeds
from tests.faults.durable import coordinator
from tests.faults.durable.coordinator import ITEMS
from tests.faults.durable.judges import judge_coordinator, judge_order
from tests.faults.durable.scenes import Scene, Stem, chosen, label_of, play, play_all

pytestmark = pytest.mark.faults


def _lines_of(module: Any, *functions: str) -> set[str]:
    """Return the labels of the lines of functions, as the interpreter counts them."""
    file = module.__file__
    codes: list[CodeType] = [compile(Path(file).read_text(), file, "exec")]
    found: set[str] = set()
    while codes:
        code = codes.pop()
        codes += [part for part in code.co_consts if isinstance(part, CodeType)]
        if code.co_name in functions:
            lines = {line for *_, line in code.co_lines() if line}
            found |= {f"{code.co_name}, line {line}" for line in lines - {min(lines)}}
    return found


@pytest.fixture
def is_long(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--long"))


async def test_an_order_killed_at_every_line_has_the_same_end(
    valkey: RedisServer, tmp_path: Path, namespace: str, is_long: bool
) -> None:
    killed: set[str] = set()
    with Seeds.from_env() as seeds:
        for is_approved in (True, False):

            def judge(scene: Scene, is_approved: bool = is_approved) -> None:
                judge_order(scene, is_approved=is_approved)

            options = {"play": "orders", "redis": valkey.url, "is_approved": is_approved}
            async with Stem.start(options, tmp_path, namespace) as stem:
                control = await play(stem, "")
                judge(control)
                marks = [mark for mark in control.passed if is_long or label_of(mark) not in killed]
                killed |= {label_of(mark) for mark in marks}
                await play_all(stem, chosen(marks, seeds, all=is_long), judge)
    missed = _lines_of(orders, "place", "_is_approved", "_remind") - killed
    assert not missed
    for step in ("reserve", "charge", "ask", "ship", "give back", "patience 1", "remind 1", "decline"):
        assert {f"before Journal.record {step}", f"after Journal.record {step}"} <= killed
    assert {"before Parking.park", "after Parking.park", "before Committer.commit"} <= killed


def _is_sure(mark: str) -> bool:
    """Three rounds fetch everything; later ones, and later batches of deletions, may not come any more."""
    label, _, occurrence = mark.rpartition(" #")
    return int(occurrence) <= (1 if "Journal.forget" in label else len(ITEMS) // 2)


async def test_the_coordinator_killed_at_every_line_neither_loops_nor_repeats_a_step(
    valkey: RedisServer, tmp_path: Path, namespace: str, is_long: bool
) -> None:
    with Seeds.from_env() as seeds:
        async with Stem.start({"play": "coordinator", "redis": valkey.url}, tmp_path, namespace) as stem:
            control = await play(stem, "")
            judge_coordinator(control)
            marks = [mark for mark in control.passed if _is_sure(mark)]
            await play_all(stem, chosen(marks, seeds, all=is_long), judge_coordinator)
    killed = {label_of(mark) for mark in marks}
    missed = _lines_of(coordinator, "coordinator", "fetch_batch") - killed
    assert not missed
    assert {"before SqlState.write", "after SqlState.write", "after Journal.record fetch"} <= killed
