"""One number makes a run's choices; it can be given, and a failure tells it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from redis_cluster_kit.testing import FactNeverCameError, Seeds, until

PLUGIN = "redis_cluster_kit.testing.pytest_plugin"


def test_the_same_seed_draws_the_same_and_names_are_independent() -> None:
    one, same, other = Seeds(7), Seeds(7), Seeds(8)
    assert one.random("a", 1).random() == same.random("a", 1).random() != other.random("a", 1).random()
    busy = one.random("a")
    busy.random()
    assert one.random("b").random() == same.random("b").random() != one.random("a").random()


def test_the_environment_decides_and_without_it_seeds_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RCK_SEED", "42")
    assert Seeds.from_env().value == 42
    monkeypatch.setenv("RCK_SEED", "forty")
    with pytest.raises(ValueError, match="whole number in RCK_SEED, got 'forty'"):
        Seeds.from_env()
    monkeypatch.delenv("RCK_SEED")
    assert len({Seeds.from_env().value for _ in range(8)}) > 1


def test_an_error_carries_the_seed() -> None:
    with pytest.raises(KeyError) as caught, Seeds(99):
        raise KeyError("x")
    assert caught.value.__notes__ == ["to repeat this run: RCK_SEED=99"]


def _pytest(folder: Path, *options: str, seed: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider", "-q", *options]
    env = {**os.environ, "RCK_SEED": seed, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.Popen(
        [*command, "--rootdir", str(folder), "test_it.py"],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_pytest_takes_the_seed_and_reports_it_where_it_was_used(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_bad(rck_seeds): assert rck_seeds.value == 0\n"
        "def test_good(rck_seeds): assert rck_seeds.value in (5, 6)\n"
        "def test_plain(): assert False\n"
    )
    with (
        _pytest(tmp_path, "--rck-seed", "5", seed="6") as with_option,
        _pytest(tmp_path, seed="6") as with_environment,
        _pytest(tmp_path, "--rck-seed", "many") as with_nonsense,
    ):
        by_option, _ = with_option.communicate(timeout=60)
        by_environment, _ = with_environment.communicate(timeout=60)
        _, complaint = with_nonsense.communicate(timeout=60)
    assert by_option.count("to repeat this run: RCK_SEED=5") == 1, by_option
    assert "2 failed, 1 passed" in by_option
    assert by_environment.count("to repeat this run: RCK_SEED=6") == 1, by_environment
    assert "expected a whole number in --rck-seed, got 'many'" in complaint
    assert with_nonsense.returncode == pytest.ExitCode.USAGE_ERROR


async def test_until_returns_the_answer_or_says_what_never_came() -> None:
    answers = iter([0, None, 7])

    async def asked() -> int | None:
        return next(answers)

    assert await until(asked) == 7
    with pytest.raises(
        FactNeverCameError, match=r"expected a new owner within 0.01 s, the last answer was \[\]"
    ):
        await until(list, timeout=0.01, what="a new owner")
    with pytest.raises(ZeroDivisionError):
        await until(lambda: 1 // 0)
