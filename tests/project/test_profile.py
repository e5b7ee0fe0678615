"""How the profile shares out what was measured: stacks by stage, Redis' counters by kind, and the drawing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import flames
from benchmarks.stages import OWNER, REST, commands, of_redis, shares, stage_of, working

LOOP = "run (asyncio/runners.py:190);BaseEventLoop._run_once (asyncio/base_events.py:{})"
TURN = "Turn.run (redis_cluster_kit/runtime/turns.py:{})"
RAW = f"""\
{LOOP.format(1)};{TURN.format(5)} 3
{LOOP.format(9)};{TURN.format(7)};decode (redis_cluster_kit/codec.py:1) 1
Thread.run (threading.py:1);Condition.wait (threading.py:320) 50
"""


def test_lines_are_merged_and_waiting_threads_left_out() -> None:
    loop, turn = (
        "BaseEventLoop._run_once (asyncio/base_events.py)",
        "Turn.run (redis_cluster_kit/runtime/turns.py)",
    )
    assert working(flames.read(RAW)) == {
        (loop, turn): 3,
        (loop, turn, "decode (redis_cluster_kit/codec.py)"): 1,
    }


@pytest.mark.parametrize(
    ("innermost", "stage"),
    [
        ("redis_cluster_kit/runtime/turns.py", "turn: begin, run, end"),
        ("redis_cluster_kit/runtime/commit.py", "commit: values, outcome"),
        ("redis_cluster_kit/redis_access/batches.py", "batches: gather, pack, hand out"),
        ("msgspec/_core.py", "turn: begin, run, end"),
        ("asyncio/selector_events.py", "connection: write, read, parse"),
        ("asyncio/tasks.py", "event loop and tasks"),
    ],
)
def test_a_stack_belongs_to_its_innermost_known_frame(innermost: str, stage: str) -> None:
    stack = ("run (redis_cluster_kit/runtime/turns.py)", f"f ({innermost})")
    assert stage_of(stack, OWNER) == stage


def test_shares_are_of_the_whole() -> None:
    found = shares(working(flames.read(RAW)), OWNER)
    assert found == {"envelope and state: decode, encode": 0.25, "turn: begin, run, end": 0.75}
    assert shares(Counter({("f (elsewhere.py)",): 1}), OWNER) == {REST: 1.0}


def test_what_redis_used_is_shared_out_completely() -> None:
    wall = commands(
        {"hset": 1.0, "evalsha": 5.0}, {"hset": 2.0, "xadd": 2.0, "info": 0.5, "evalsha": 12.0, "eval": 1.0}
    )
    assert wall["scripts"] == 8.0
    found = of_redis(wall, 2.0, 5.0)
    assert sum(found.values()) == pytest.approx(5.0)
    assert found["Lua: the scripts' own work, calls"] == pytest.approx(4.0 - 0.5 - 1.0 - 0.25)
    assert found["connections: read, parse, answer"] == pytest.approx(1.0)


def test_a_drawing_names_what_is_wide_enough(tmp_path: Path) -> None:
    stacks = Counter({("outer (a.py)", "inner <x> (b.py)"): 999, ("outer (a.py)", "rare (c.py)"): 1})
    path = tmp_path / "drawn.svg"
    flames.draw(flames.tree(stacks, "a title"), path, "dark", {"a": "#ffffff"}, "a note")
    titles = [element.text for element in ElementTree.parse(path).iter() if element.tag.endswith("title")]
    assert titles == ["outer (a.py) 100.0%", "inner <x> (b.py) 99.9%"]
