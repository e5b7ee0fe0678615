"""What the benchmarks measured last, as a page of tables and as figures to be put between marks in others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results"


def figures_page(note: str) -> str:
    """Return the page of what the benchmarks measured last."""
    lines = [
        "# Figures",
        "",
        note,
        "",
        "Measured by `nox -s bench`, which exits 1 where a promise is broken (`nox -s bench -- lanes`: only",
        "that one). Figures depend on the machine: compare those of one run, not those of two machines.",
    ]
    for path in sorted(RESULTS.glob("*.json")):
        results: dict[str, Any] = json.loads(path.read_text())
        lines += ["", f"## {path.stem}", ""]
        if (DOCS / "assets" / f"{path.stem}-light.png").is_file():
            for shade in ("light", "dark"):
                lines.append(f"![{path.stem}](../assets/{path.stem}-{shade}.png#only-{shade})")
            lines.append("")
        lines += _tables(results)
    return "\n".join(lines) + "\n"


def marked() -> dict[str, str]:
    """Return what stands between each pair of marks."""
    return {"lanes-table": _lanes_table(), "lanes-factor": _lanes_factor(), **_worst(), **_speed()}


def _worst() -> dict[str, str]:
    """The figures that promises are about, by the mark they stand behind."""

    def read(name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
        return found

    takeover, singletons = read("takeover")["figures"], read("singletons")["figures"]
    latency, scheduled = read("latency"), read("scheduled")["figures"]
    ways, ratios = latency["figures_ms"], latency["ratio_to_floor"]
    late = scheduled["scheduled message, late by"]
    tick = read("crons")["figures"]["one cron each second"]
    cpu = read("scheduled")["owner_cpu_us"]

    def worst(figures: dict[str, Any], name: str) -> str:
        return f"{figures[name]['of_every_shard']['max_ms'] / 1000:.2f} s"

    return {
        "takeover": worst(takeover, "SIGKILL: kill to next owner"),
        "hand-off": worst(takeover, "SIGTERM: end of work to next owner"),
        "leader-killed": worst(singletons, "SIGKILL: kill to next leader"),
        "leader-leaves": worst(singletons, "SIGTERM: signal to next leader"),
        "one-way": f"p50 {ways['one-way']['p50']} ms, p99 {ways['one-way']['p99']} ms, "
        f"at load {ways['one-way at load']['p99']} ms",
        "floor": f"one-way {ratios['one-way']} ×, asked {ratios['asked']} ×",
        "late": f"median {late['p50']} ms, worst {late['max']} ms",
        "ticks": f"median {tick['p50']} ms, worst {tick['max']} ms",
        "turn-cpu": f"{cpu['turn of an entity in memory']:.0f} µs",
        "activation-cpu": f"{cpu['activation and first turn']:.0f} µs",
        "passivation-cpu": f"{cpu['passivation']:.0f} µs",
        "saves": f"{singletons['saves']['saves_per_second']:,}",
        **_steps(read("durable")),
    }


def _steps(found: dict[str, Any]) -> dict[str, str]:
    """What durable steps cost, by database."""
    figures, marks = found["figures"], dict[str, str]()
    for name in found["parked"]:
        one, many = (
            figures[f"{what}, {name}"] for what in ("one singleton", f"{found['entities']} entities")
        )
        database, parked = "postgres" if name == "PostgreSQL" else "sqlite", found["parked"][name]
        marks[f"steps-one-{database}"] = f"{one['steps_per_second']:,}"
        marks[f"steps-many-{database}"] = f"{many['steps_per_second']:,}"
        marks[f"parked-redis-{database}"] = f"{parked['redis_bytes']:,}"
        marks[f"parked-database-{database}"] = f"{parked['database_bytes']:,}"
    return marks


def _speed() -> dict[str, str]:
    """The figures of what a message costs."""

    def read(name: str) -> dict[str, Any]:
        path = RESULTS / f"{name}.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
        return found

    marks: dict[str, str] = {}
    if ways := read("throughput").get("figures"):
        sent, asked = ways["one-way"], ways["asked"]
        promised = read("throughput")["promises"]
        is_kept = all(ways[way]["per_second"] >= promised[way] for way in ("one-way", "asked"))
        marks["throughput"] = f"{sent['per_second']:,} one-way, {asked['per_second']:,} asked{_kept(is_kept)}"
        marks["owner-cpu"] = f"{sent['owner_cpu_us']} µs"
    if peers := read("against_peers"):
        best = f"{peers['ours_to_the_best']} × the best of them, {peers['best']}"
        marks |= {"peers-factor": best, "peers-table": _peers_table(peers["figures"])}
    if profile := read("profile"):
        used, total = profile["cpu_us"], profile["cpu_us"]["all"]
        marks["stages-sum"] = f"{used['sender']} + {used['Redis']} + {used['owner']} = {total} µs"
        marks["stages-table"] = _stages_table(profile)
    if flat := read("flat_cost").get("figures"):
        shares = {title: one["share"] for title, one in flat.items() if one.get("judged") == "yes"}
        slowest = min(shares, key=lambda title: shares[title])
        is_kept = shares[slowest] >= 1 - read("flat_cost")["within"]
        marks["flat"] = f"at worst {shares[slowest]:.0%} ({slowest}){_kept(is_kept)}"
    if memory := read("memory"):
        drained, active = memory["backlog"], memory["figures"]["active"]
        marks["backlog"] = f"{drained['handled_per_second']:,}/s, at most {drained['runner_peak_mb']} MB"
        marks["entity-bytes"] = (
            f"{active['redis_bytes']:,} B in Redis, {active['runner_bytes']:,} B in the runner"
        )
    if crowd := read("crowd"):
        marks["neighbour"] = f"{crowd['p99_times']} ×"
    return marks


def _kept(is_kept: bool) -> str:
    return "" if is_kept else ", **not kept**"


def _peers_table(rows: dict[str, dict[str, Any]]) -> str:
    lines = [
        "| | messages a second | acknowledged | order | dedupe | state |",
        "| --- |" + " --- |" * 5,
    ]
    for title, row in sorted(rows.items(), key=lambda one: -_number(one[1]["messages_per_second"])):
        named = f"{title} {row.get('version', '')}".strip()
        columns = [_figure(row["messages_per_second"])]
        columns += [str(row.get(name, "")) for name in ("acknowledged", "order", "dedupe", "state")]
        lines.append(f"| {named} | {' | '.join(columns)} |")
    return "\n\n" + "\n".join(lines) + "\n\n"


def _number(figure: object) -> float:
    return float(figure) if isinstance(figure, (int, float)) else 0.0


def _stages_table(profile: dict[str, Any]) -> str:
    lines = ["| where | stage | µs |", "| --- | --- | --- |"]
    for place, stages in profile["stages_us"].items():
        lines.append(f"| **{place}** | | **{profile['cpu_us'][place]}** |")
        lines += [f"| | {stage} | {used} |" for stage, used in stages.items()]
    return "\n\n" + "\n".join(lines) + "\n\n"


def _lanes() -> dict[str, Any]:
    results: dict[str, Any] = json.loads((RESULTS / "lanes.json").read_text())
    return results


def _lanes_factor() -> str:
    return f"{_lanes()['lanes_to_pool']:.1f} ×"


def _lanes_table() -> str:
    figures: dict[str, dict[str, float]] = _lanes()["figures"]
    pool = next(iter(figures.values()))["commands_per_second"]
    lines = [
        "| way | commands a second | × the pool | client CPU each | mean wait |",
        "| --- |" + " --- |" * 4,
    ]
    for way, found in figures.items():
        rate, cpu = found["commands_per_second"], found["client_cpu_microseconds_per_command"]
        lines.append(f"| {way} | {rate:,} | {rate / pool:.1f} | {cpu} µs | {found['mean_wait_ms']:.2f} ms |")
    return "\n\n" + "\n".join(lines) + "\n\n"


def _tables(results: dict[str, Any]) -> Iterator[str]:
    """One table of the ways that were compared, if there are several; one of everything else."""
    ways = results.get("figures")
    if isinstance(ways, dict) and all(isinstance(found, dict) for found in ways.values()):
        results = {name: value for name, value in results.items() if name != "figures"}
        columns = list(dict.fromkeys(name for found in ways.values() for name in found))
        yield f"| | {' | '.join(name.replace('_', ' ') for name in columns)} |"
        yield "| --- |" + " --- |" * len(columns)
        for way, found in ways.items():
            yield f"| {cell(way)} | {' | '.join(_figure(found.get(name, '')) for name in columns)} |"
        yield ""
    yield from ("| what | figure |", "| --- | --- |")
    for what, figure in _flattened(results):
        yield f"| {cell(what)} | {figure} |"


def _flattened(results: Any, above: str = "") -> Iterator[tuple[str, str]]:
    """Yield every figure with the path to it in words; charts and raw trials are left out."""
    if not isinstance(results, dict):
        yield above, _figure(results)
        return
    for name, value in results.items():
        if name not in ("charts", "trials"):
            words = str(name).replace("_", " ")
            yield from _flattened(value, f"{above}: {words}" if above else words)


def _figure(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_figure, value)) if len(value) <= 5 else f"{len(value)} values"
    if isinstance(value, dict):  # a spread: p50, p99, max
        found = cast("dict[str, Any]", value)
        return ", ".join(f"{name.replace('_', ' ')} {_figure(one)}" for name, one in found.items())
    return f"{value:,}" if type(value) is int and value > 9999 else str(value)


def cell(text: str) -> str:
    """Return text as it fits a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")
