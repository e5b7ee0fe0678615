"""The peers: what to install, and what each does for a message with the settings it is measured with.

Settings are those that serve each best at a no-op handler; its own file says which. `uvloop` and `hiredis`
are installed for all.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Does:
    """What a message gets for its price."""

    acknowledged: str
    """When the queue forgets it: a consumer killed before that loses nothing, one killed after it does."""
    order: str
    dedupe: str
    state: str = "none"
    result: str = "none"

    def figures(self) -> dict[str, str]:
        """Return it as columns of a table."""
        return {
            "acknowledged": self.acknowledged,
            "order": self.order,
            "dedupe": self.dedupe,
            "state": self.state,
            "result": self.result,
        }


@dataclass(frozen=True)
class Peer:
    """One row: a library, and a variant of it where it offers two ways."""

    title: str
    module: str
    requirements: tuple[str, ...]
    does: Does
    variant: str = ""

    @property
    def distribution(self) -> str:
        """The package whose version is told."""
        return self.requirements[0].partition("=")[0].partition("[")[0]


OURS = Does(
    acknowledged="after, with the state, in one script",
    order="per entity",
    dedupe="every message, by id",
    state="saved each turn, fenced",
    result="none asked for",
)

TASKIQ = ("taskiq==0.13.*", "taskiq-redis")

PEERS = (
    Peer(
        "taskiq (stream)",
        "taskiq",
        TASKIQ,
        Does("after, the entry stays in the stream", "none, 200 at once", "none"),
        variant="stream",
    ),
    Peer(
        "taskiq (list)",
        "taskiq",
        TASKIQ,
        Does("before: gone when taken", "none, 200 at once", "none"),
        variant="list",
    ),
    Peer(
        "faststream",
        "faststream",
        ("faststream[redis]==0.7.*",),
        Does("after, the entry stays in the stream", "none, 100 at once", "none"),
    ),
    Peer(
        "docket", "docket", ("pydocket==0.27.*",), Does("after", "none, 50 at once", "by key while it waits")
    ),
    Peer("streaq", "streaq", ("streaq==7.2.*",), Does("after", "none, 200 at once", "by id while it waits")),
    Peer("arq", "arq", ("arq==0.28.*",), Does("after", "none, 200 at once", "by id while it waits")),
    Peer(
        "saq",
        "saq",
        ("saq[redis]==0.26.*", "typing_extensions"),
        Does("after", "none, 100 at once", "by key while it waits"),
    ),
    Peer("dramatiq", "dramatiq", ("dramatiq[redis]==2.2.*",), Does("after", "none, 8 threads", "none")),
    Peer(
        "celery",
        "celery",
        ("celery[redis]==5.7.*",),
        Does("before it runs (its default)", "none, 2 processes", "none"),
    ),
)
