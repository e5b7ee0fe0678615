"""The frame around benchmarks: all are found, a broken promise is told, and it says how far it is."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as frame
from benchmarks import machine, report
from benchmarks.__main__ import Benchmark, Result, run, run_all, table
from benchmarks.progress import Progress, spoken


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def own_durations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "durations.json"
    monkeypatch.setattr(machine, "DURATIONS", path)
    return path


def says(name: str, *lines: str, exit_code: int = 0) -> Benchmark:
    text = "\n".join(lines)
    return Benchmark(name, (sys.executable, "-c", f"print({text!r}); raise SystemExit({exit_code})"))


def test_benchmarks_are_the_modules_with_a_main() -> None:
    found = frame.names()
    assert "lanes" in found
    assert not {"machine", "progress", "report", "__main__"} & set(found)


def test_a_broken_promise_is_told_and_exits_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = {
        "good": says("good", "measuring", "5 × the pool"),
        "bad": says("bad", "2 × the pool: BELOW 3", exit_code=1),
    }
    monkeypatch.setattr(frame, "names", lambda: sorted(made))
    monkeypatch.setattr(Benchmark, "of_module", made.__getitem__)
    monkeypatch.setattr(report, "main", lambda: 0)
    assert frame.main(["good"]) == 0
    capsys.readouterr()
    assert frame.main([]) == 1
    shown = capsys.readouterr().out
    assert "[1/2] bad" in shown
    assert re.search(r"^bad +BROKEN +\d+ s +2 × the pool: BELOW 3$", shown, re.MULTILINE)
    assert re.search(r"^good +kept +\d+ s +5 × the pool$", shown, re.MULTILINE)


def test_one_that_falls_over_says_why() -> None:
    fallen, killed = run_all(
        [
            Benchmark("fallen", (sys.executable, "-c", "raise SystemExit('no server')")),
            Benchmark("killed", (sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")),
        ]
    )
    assert (fallen.exit_code, fallen.found) == (1, "no server")
    assert killed.verdict == "failed (-9)"
    assert "failed (-9)" in table([fallen, killed])


def test_how_long_each_took_is_kept_for_the_next_time(own_durations: Path) -> None:
    run_all([says("one"), says("two", exit_code=3)])
    assert json.loads(own_durations.read_text()).keys() == {"one"}  # a failed one says nothing
    run_all([says("two"), says("one")])
    assert json.loads(own_durations.read_text()).keys() == {"one", "two"}


def test_options_go_to_one_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(io.StringIO()) as progress:
        command = (sys.executable, "-c", "import sys; print(sys.argv[1:])")
        assert run(Benchmark("one", command), progress, ["--trials", "3"]).found == "['--trials', '3']"
    with pytest.raises(SystemExit):
        frame.main(["--trials", "3"])
    assert "options go to one benchmark" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        frame.main(["nosuch"])
    assert "unknown: nosuch" in capsys.readouterr().err


def test_it_says_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    with Progress(stream) as progress:
        progress.begin("[1/3] lanes", [60.0, None, 125.0])
        assert progress.state() == "[1/3] lanes, for 0 s, about 3 min 05 s left, 1 of unknown length"
        progress.show("a line")
    assert stream.getvalue().endswith("a line\n")
    assert "\x1b" not in stream.getvalue()


def test_on_a_terminal_the_state_stands_below_the_lines() -> None:
    stream = Terminal()
    with Progress(stream) as progress:
        progress.begin("[1/1] lanes", [None])
        progress.show("a line")
        assert stream.getvalue().endswith("a line\n[1/1] lanes, for 0 s, 1 of unknown length")
    assert stream.getvalue().endswith("\r\x1b[2K")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (605, "10 min 05 s")]
)
def test_durations_are_spoken(seconds: float, text: str) -> None:
    assert spoken(seconds) == text


def test_a_table_is_aligned() -> None:
    shown = table([Result("lanes", 19.2, 0, "17 ×"), Result("takeover", 200, 1, "11 s")]).splitlines()
    assert shown[1:] == [
        "benchmark  promise           took  found",
        "lanes      kept              19 s  17 ×",
        "takeover   BROKEN      3 min 20 s  11 s",
    ]


def test_every_result_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="only `nox -s bench` installs it")
    drawn = 0
    for path in machine.RESULTS.glob("*.json"):
        for shade in report.SHADES if report.charts(path) else ():
            report.draw(report.charts(path), tmp_path / f"{path.stem}-{shade}.png", shade)
            drawn += 1
    assert drawn >= 2
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in tmp_path.glob("*.png"))
