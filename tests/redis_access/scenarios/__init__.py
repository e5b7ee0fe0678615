"""A scenario for every outcome word of every script; two tests run them."""

from __future__ import annotations

from redis_cluster_kit.redis_access import Keyspace

from . import messages, owning, turns
from .scenario import NEWER, OLD, Scenario

__all__ = ["NEWER", "OLD", "Scenario", "scenarios"]


def scenarios(keyspace: Keyspace) -> list[Scenario]:
    """Return all of them, for one namespace."""
    return [
        *owning.lease_scenarios(keyspace),
        *owning.fence_scenarios(keyspace),
        *owning.granting_scenarios(keyspace),
        *owning.membership_scenarios(keyspace),
        *owning.state_scenarios(keyspace),
        *owning.machine_scenarios(keyspace),
        *owning.other_scenarios(keyspace),
        *owning.value_scenarios(keyspace),
        *messages.append_scenarios(keyspace),
        *messages.schedule_scenarios(keyspace),
        *messages.sender_scenarios(keyspace),
        *messages.dead_letter_scenarios(keyspace),
        *turns.claim_scenarios(keyspace),
        *turns.commit_scenarios(keyspace),
        *turns.ending_scenarios(keyspace),
        *turns.owner_scenarios(keyspace),
        *turns.parking_scenarios(keyspace),
    ]
