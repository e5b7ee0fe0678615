"""What must be so in the end, wherever a pod died."""

from __future__ import annotations

from .scenes import Scene, label_of

FETCHED = [f"fetch after {after!r}" for after in ("", "2", "4")]
BEHIND_THE_TURN = ("after Committer.commit", "before Journal.forget", "after Journal.forget")
"""Whose pod dies here leaves the journal to whoever cleans up when its retention has passed."""


def judge_order(scene: Scene, *, is_approved: bool) -> None:
    """A step is run again only if its pod died between its effect and its record."""
    died, log = label_of(scene.died), scene.log
    assert scene.end == (["shipped", "parcel of 17"] if is_approved else ["declined", ""]), (died, log)
    for step in ("reserve", "charge", "ask", "ship" if is_approved else "give back"):
        unrecorded = died in (f"{step} ends", f"before Journal.record {step}")
        assert log.count(f"ran {step}") == 1 + unrecorded, (died, log)
    if is_approved:
        # An approval may overtake a reminder that is being sent: that is cut short then, and may come again.
        assert 1 <= log.count("ran remind") <= 4, (died, log)
    else:
        unrecorded = died in ("remind ends", "before Journal.record remind 1")
        assert log.count("ran remind") == 1 + unrecorded, (died, log)
    if died not in BEHIND_THE_TURN:
        for table in ("rck_step", "rck_execution", "rck_deferred"):
            assert scene.count(table) == 0, (died, log)


def judge_coordinator(scene: Scene) -> None:
    """Everything is seen once, in the state; and fetched once, where its record was written."""
    died, log = label_of(scene.died), scene.log
    assert scene.end == ["6", 6], (died, log)
    within = died.startswith("fetch") and not died.endswith("begins")
    unrecorded = within or died == "before Journal.record fetch"
    counts = [log.count(f"ran {step}") for step in FETCHED]
    assert min(counts) == 1, (died, log)
    assert sum(counts) - 3 <= unrecorded, (died, log)
    assert scene.count("rck_execution WHERE aside_at IS NOT NULL") == 0, (died, log)
