"""Judges what the Redis servers said: version, eviction, persistence, memory, clock, latency. Pure."""

from __future__ import annotations

from datetime import timedelta

from .finding import Finding, ok, problem, warning
from .server_facts import ServerFacts

_OLDEST = (7, 0)
_SLOW = 0.005
_SKEWED = 1.0
_FULL = 0.9


def judge_server(facts: ServerFacts, *, ttl: timedelta, has_database: bool) -> list[Finding]:
    """Return the verdicts on one server that holds data."""
    return [
        *judge_lease_node(facts, ttl=ttl),
        _persistence(facts, has_database=has_database),
        *_memory(facts),
        _stream_nodes(facts),
    ]


def judge_lease_node(facts: ServerFacts, *, ttl: timedelta) -> list[Finding]:
    """Return the verdicts on what leases need of a server."""
    return [_readable(facts), _version(facts), _eviction(facts), _clock(facts), _latency(facts, ttl)]


def _readable(facts: ServerFacts) -> Finding:
    if not facts.refused:
        return ok("inspection", facts.where, "INFO, CONFIG GET and TIME may be read")
    said = "; ".join(f"{name}: {text}" for name, text in sorted(facts.refused.items()))
    advice = "allow +info +config|get +time, else joining needs RCK_REDIS_ASSUME_NOEVICTION=true"
    return warning("inspection", facts.where, said, advice)


def _version(facts: ServerFacts) -> Finding:
    text = facts.info.get("redis_version", "")
    shown = f"Redis {text}"
    if "valkey_version" in facts.info:
        shown = f"Valkey {facts.info['valkey_version']} (speaks as Redis {text})"
    parts = text.split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):
        return warning("version", facts.where, "unknown", "the kit needs Redis or Valkey 7.0 or newer")
    if (int(parts[0]), int(parts[1])) < _OLDEST:
        return problem("version", facts.where, shown, "the kit needs Redis or Valkey 7.0 or newer: update")
    return ok("version", facts.where, shown)


def _eviction(facts: ServerFacts) -> Finding:
    policy = facts.setting("maxmemory-policy")
    if policy == "noeviction":
        return ok("eviction", facts.where, policy)
    if policy is None:
        advice = "allow CONFIG GET or INFO, and see to it that maxmemory-policy is noeviction"
        return warning("eviction", facts.where, "cannot be read", advice)
    advice = "with eviction Redis forgets fences and mailboxes: CONFIG SET maxmemory-policy noeviction"
    return problem("eviction", facts.where, policy, advice)


def _persistence(facts: ServerFacts, *, has_database: bool) -> Finding:
    check, where = "persistence", facts.where
    appends, syncs = facts.setting("appendonly"), facts.setting("appendfsync")
    if facts.info.get("aof_last_write_status", "ok") != "ok":
        advice = "the append-only file cannot be written: look at the server's log and its disk"
        return problem(check, where, f"last AOF write: {facts.info['aof_last_write_status']}", advice)
    if appends is None:
        return warning(check, where, "cannot be read", "allow CONFIG GET; the kit wants appendonly yes")
    if not has_database and (appends, syncs) != ("yes", "always"):
        advice = (
            "without a database fences are as good as Redis' memory: appendonly yes and appendfsync always, "
            "or give the cluster a database"
        )
        return problem(check, where, f"appendonly {appends}, appendfsync {syncs or 'unknown'}", advice)
    if appends != "yes":
        advice = "a restart forgets mailboxes, timers and entity state: CONFIG SET appendonly yes"
        return warning(check, where, "appendonly no", advice)
    if syncs == "no":
        advice = "a power failure may lose half a minute: CONFIG SET appendfsync everysec, or always"
        return warning(check, where, "appendonly yes, appendfsync no", advice)
    lost = "nothing" if syncs == "always" else "about the last second"
    return ok(check, where, f"appendonly yes, appendfsync {syncs}: a power failure loses {lost}")


def _memory(facts: ServerFacts) -> list[Finding]:
    used, most = (int(facts.info.get(name, "0")) for name in ("used_memory", "maxmemory"))
    if not used:
        return []
    shown = f"{used / 2**20:.0f} MB used" + (f" of {most / 2**20:.0f} MB" if most else ", no maxmemory")
    if most and used > most * _FULL:
        advice = "full soon: then senders are refused; raise maxmemory or look for mailboxes that grow"
        return [warning("memory", facts.where, shown, advice)]
    return [ok("memory", facts.where, shown)]


def _clock(facts: ServerFacts) -> Finding:
    shown = f"{facts.skew * 1000:+.0f} ms against this host"
    if abs(facts.skew) > _SKEWED:
        advice = "leases do not mind, schedules follow the server's clock: run NTP on both hosts"
        return warning("clock", facts.where, shown, advice)
    return ok("clock", facts.where, shown)


def _latency(facts: ServerFacts, ttl: timedelta) -> Finding:
    slowest = max(facts.latencies)
    shown = f"median {facts.median * 1000:.1f} ms, slowest {slowest * 1000:.1f} ms of {len(facts.latencies)}"
    limit = ttl.total_seconds() / 10
    if facts.median > limit:
        advice = (
            f"leases cannot be renewed: an attempt has {limit:g} s; look at the network, or raise the TTL"
        )
        return problem("latency", facts.where, shown, advice)
    if facts.median > _SLOW:
        advice = "each message waits for this several times: bring the services nearer to Redis"
        return warning("latency", facts.where, shown, advice)
    return ok("latency", facts.where, shown)


def _stream_nodes(facts: ServerFacts) -> Finding:
    size = facts.setting("stream-node-max-bytes")
    if size is None:
        return ok("mailbox memory", facts.where, "stream-node-max-bytes cannot be read")
    if not 0 < int(size) <= 1024:
        advice = (
            "a mailbox with one waiting message takes 4.9 KB, with 512 only 1.3 KB: "
            "CONFIG SET stream-node-max-bytes 512"
        )
        return ok("mailbox memory", facts.where, f"stream-node-max-bytes {size}", advice)
    return ok("mailbox memory", facts.where, f"stream-node-max-bytes {size}")
