"""`rck doctor`: runs the checks, shows the verdicts. What cannot be reached is a finding, not an end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import anyio
import click

from redis_cluster_kit.cli import output
from redis_cluster_kit.cli.commands import CANNOT, PROBLEM, Command, database_option, explain, redis_options
from redis_cluster_kit.cli.stores import (
    ClusterSide,
    RedisSide,
    lease_nodes,
    make_database,
    open_redis,
    parse_redis,
    read_settings,
)
from redis_cluster_kit.errors import ClusterError
from redis_cluster_kit.storage import Database

from .cluster_checks import check_fences, check_lease_nodes, check_record, check_shards, judge_layout
from .database_checks import judge_absence, judge_database, read_facts
from .finding import Finding, count, problem
from .rights_checks import check_rights
from .server_checks import judge_lease_node, judge_server
from .server_facts import server_facts


class Diagnosis(NamedTuple):
    """All findings, and whether Redis could be asked at all."""

    findings: list[Finding]
    reached: bool


@click.command(cls=Command, short_help="Check what the cluster stands on.")
@redis_options
@database_option
@click.pass_context
def doctor(
    context: click.Context, *, redis: str | None, namespace: str, as_json: bool, database: str | None
) -> None:
    """Check what the cluster stands on: Redis, its rights, the database, the record, the lease nodes.

    Run it where a service runs, with the service's own variables. Nothing is changed. Exit code 1 if there is
    a problem, 2 if Redis cannot be asked.
    """
    diagnosis = anyio.run(diagnose, redis, namespace, database)
    show(diagnosis.findings, as_json=as_json)
    if not diagnosis.reached:
        context.exit(CANNOT)
    if count(diagnosis.findings, "problem"):
        context.exit(PROBLEM)


async def diagnose(redis: str | None, namespace: str, database: str | None) -> Diagnosis:
    """Run all checks that can be run."""
    settings = read_settings()
    parse_redis(redis)
    if database is None:
        return await _with_redis(redis, namespace, None, named=False)
    opened = make_database(database, settings)
    async with opened:
        facts = await read_facts(opened)
        if isinstance(facts, Finding):
            usable, judged = None, [facts]
        else:
            usable = opened if facts.schema_version else None
            judged = judge_database(facts, repr(opened), settings.lease.ttl)
        seen = await _with_redis(redis, namespace, usable, named=True)
        return Diagnosis([*seen.findings, *judged], seen.reached)


async def _with_redis(
    redis: str | None, namespace: str, database: Database | None, *, named: bool
) -> Diagnosis:
    """Check Redis and, against it, a database that can be read; `named` says that one was given."""
    findings: list[Finding] = []
    try:
        async with open_redis(redis, namespace) as side:
            findings += await _redis_findings(side, has_database=named)
            findings += [] if named else [judge_absence(side.record)]
            findings += await _cluster_findings(side, database)
    except ClusterError as error:
        advice = "start it, or correct RCK_REDIS; what else was to be checked there is left out"
        failed = problem("redis", str(parse_redis(redis)), explain(error), advice)
        return Diagnosis([*findings, failed], reached=bool(findings))
    return Diagnosis(findings, reached=True)


async def _redis_findings(side: RedisSide, *, has_database: bool) -> list[Finding]:
    ttl = side.settings.lease.ttl
    durable = has_database or bool(side.record and side.record.database_uuid)
    findings = [
        finding
        for facts in await server_facts(side.lanes)
        for finding in judge_server(facts, ttl=ttl, has_database=durable)
    ]
    return [*findings, await check_rights(side.lanes, side.keyspace)]


async def _cluster_findings(side: RedisSide, database: Database | None) -> list[Finding]:
    namespace = side.keyspace.namespace
    findings: list[Finding] = []
    if database is not None:
        findings.append(await check_record(side.record, database, namespace))
    elif side.record is not None:
        findings.append(judge_layout(side.record, f"namespace {namespace}"))
    if side.record is None:
        return findings
    async with lease_nodes(side) as nodes:
        cluster = ClusterSide.of(side, nodes)
        lease_findings = await check_lease_nodes(cluster)
        findings += lease_findings
        findings += await _lease_node_findings(cluster, lease_findings)
        if count(lease_findings, "problem") == 0:
            findings += await check_shards(cluster)
            if database is not None:
                findings.append(await check_fences(await cluster.look(), database, namespace))
    return findings


async def _lease_node_findings(side: ClusterSide, known: Sequence[Finding]) -> list[Finding]:
    if not side.standing.lease_nodes:
        return []
    down = {finding.where for finding in known if finding.verdict != "ok"}
    return [
        finding
        for place, lanes in side.nodes.items()
        if place not in down
        for facts in await server_facts(lanes)
        for finding in judge_lease_node(facts, ttl=side.settings.lease.ttl)
    ]


def show(findings: Sequence[Finding], *, as_json: bool) -> None:
    """Print the verdicts; what to do stands under each that has it."""
    problems, warnings = count(findings, "problem"), count(findings, "warning")
    if as_json:
        output.show_json({"problems": problems, "warnings": warnings, "findings": findings})
        return
    wide = max((len(finding.check) for finding in findings), default=0)
    for finding in findings:
        verdict = click.style(f"{finding.verdict:8}", fg=output.COLOURS[finding.verdict])
        click.echo(f"{verdict} {finding.check:{wide}}  {finding.where}: {finding.found}")
        if finding.advice:
            click.echo(f"{'':8} {'':{wide}}  → {finding.advice}")
    click.echo(f"{len(findings)} checks; problems: {problems}, warnings: {warnings}")
