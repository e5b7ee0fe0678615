"""What figures were measured on, and where they are kept. Measures nothing itself."""

from __future__ import annotations

import json
import os
import platform
import resource
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
DURATIONS = Path(__file__).parent / "durations.json"


def machine() -> dict[str, str | int]:
    """Return the processor, the cores this process may use, the system, and the server that is measured."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "server": f"Valkey of the wheel, one process, {_allocator()}",
    }


class Beside:
    """How much of the machine others use meanwhile: what they took is missing in the figures."""

    def __init__(self) -> None:
        self._busy, self._whole = _cpu_ticks()
        self._ours = _ours()

    def share(self) -> float:
        """Return the share of all cores' time that went to processes not started here."""
        busy, whole = _cpu_ticks()
        others = (busy - self._busy) - (_ours() - self._ours)
        return max(0.0, others / max(1.0, whole - self._whole))


def _cpu_ticks() -> tuple[float, float]:
    facts = Path("/proc/stat")
    if not facts.is_file():
        return 0.0, 0.0
    ticks = [float(one) for one in facts.read_text().splitlines()[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def _ours() -> float:
    """Return the ticks of this process, and of its children and theirs that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used) * os.sysconf("SC_CLK_TCK")


def versions(*distributions: str) -> dict[str, str]:
    """Return the installed version of each distribution."""
    return {name: version(name) for name in distributions}


def write_results(name: str, results: Mapping[str, Any]) -> Path:
    """Write `benchmarks/results/<name>.json` and return its path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(results, indent=2) + "\n")
    return path


def durations() -> dict[str, float]:
    """Return how many seconds each benchmark took last time: what is left is guessed from it."""
    found: dict[str, float] = json.loads(DURATIONS.read_text()) if DURATIONS.is_file() else {}
    return found


def remember_duration(name: str, seconds: float) -> None:
    """Keep how long a benchmark took."""
    took = durations() | {name: round(seconds)}
    DURATIONS.write_text(json.dumps(dict(sorted(took.items())), indent=2) + "\n")


def _allocator() -> str:
    own = os.environ.get("GLIBC_TUNABLES")
    return f"malloc with {own}" if own else "malloc with larger caches (`embedded/redis_server.py`)"


def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()
