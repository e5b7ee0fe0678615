"""`python -m benchmarks [name …]`: runs every benchmark, or those named, one after the other.

Each runs in a process of its own, so that none warms up or slows down the next. Shows how far it is and
roughly how long it still takes, prints a table at the end, draws the report; 1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import Beside, durations, remember_duration
from benchmarks.progress import Progress, spoken

FOLDER = Path(__file__).parent
MOST_BESIDE = 0.05
"""Beside a larger share of others the figures are worth less."""


@dataclass(frozen=True)
class Benchmark:
    """One question: a module of this folder with `main() -> int`, or any command."""

    name: str
    command: tuple[str, ...]

    @classmethod
    def of_module(cls, name: str) -> Benchmark:
        """The benchmark in `benchmarks/<name>.py`."""
        return cls(name, (sys.executable, "-u", "-m", f"benchmarks.{name}"))


@dataclass(frozen=True)
class Result:
    """How one benchmark ended; its last line says what it found."""

    name: str
    seconds: float
    exit_code: int
    found: str

    @property
    def verdict(self) -> str:
        """1 is a broken promise, or Python's own error (`found` tells which); a signal is neither."""
        return {0: "kept", 1: "BROKEN"}.get(self.exit_code, f"failed ({self.exit_code})")


def names(folder: Path = FOLDER) -> list[str]:
    """Return the modules that are benchmarks: those that define `main() -> int`, but for the report."""
    return sorted(
        path.stem
        for path in folder.glob("*.py")
        if not path.stem.startswith("_")
        and path.stem != "report"
        and "\ndef main() -> int:" in path.read_text()
    )


def run(benchmark: Benchmark, progress: Progress, options: Sequence[str] = ()) -> Result:
    """Run one benchmark; its lines are shown as they come."""
    began, last, beside = time.monotonic(), "", Beside()
    with subprocess.Popen(
        [*benchmark.command, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                progress.show(line.rstrip("\n"))
                last = line.strip() or last
        except BaseException:
            process.terminate()
            raise
    if (others := beside.share()) > MOST_BESIDE:
        progress.show(f"! others used {others:.0%} of this machine meanwhile: measure again when it is quiet")
    return Result(benchmark.name, time.monotonic() - began, process.returncode, last)


def run_all(benchmarks: Sequence[Benchmark], options: Sequence[str] = ()) -> list[Result]:
    """Run one after the other, saying what is left; what took how long is kept for the next time."""
    results: list[Result] = []
    expected = durations()
    with Progress() as progress:
        for place, benchmark in enumerate(benchmarks):
            left = [expected.get(one.name) for one in benchmarks[place:]]
            progress.begin(f"[{place + 1}/{len(benchmarks)}] {benchmark.name}", left)
            results.append(run(benchmark, progress, options))
            if results[-1].exit_code in (0, 1) and not options:
                remember_duration(benchmark.name, results[-1].seconds)
    return results


def table(results: Sequence[Result]) -> str:
    """What was measured, one line each."""
    width = max(len(name) for name in ("benchmark", *(result.name for result in results)))
    lines = ["", f"{'benchmark':{width}}  {'promise':10}  {'took':>10}  found"]
    for result in results:
        took = spoken(result.seconds)
        lines.append(f"{result.name:{width}}  {result.verdict:10}  {took:>10}  {result.found}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; 1 if a promise is broken or a benchmark could not measure."""
    known = names()
    parser = argparse.ArgumentParser(prog="nox -s bench --", description=__doc__, allow_abbrev=False)
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of {', '.join(known)}; default: all")
    parser.add_argument("--list", action="store_true", help="say which there are, and how long each took")
    chosen, options = parser.parse_known_args(arguments)
    unknown = sorted(set(chosen.names) - set(known))
    if unknown or (options and len(chosen.names) != 1):
        parser.error(f"unknown: {', '.join(unknown or options)}; options go to one benchmark, named first")
    if chosen.list:
        took = durations()
        print("\n".join(f"{name:20} {spoken(took[name]) if name in took else '?':>9}" for name in known))
        return 0
    results = run_all([Benchmark.of_module(name) for name in chosen.names or known], options)
    print(table(results))
    from benchmarks.report import main as report

    report()
    return 0 if all(result.exit_code == 0 for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
