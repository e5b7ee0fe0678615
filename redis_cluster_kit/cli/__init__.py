"""The `rck` command: see, check, prepare, run and show a cluster. Needs the `cli` extra.

Only the way in is here; each command is a module of its own, and `program` puts them together.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run `rck` with this process' arguments; the exit code is 2 if what was asked cannot be done."""
    try:
        from .program import rck
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        print("rck: its extra is not installed: pip install 'redis-cluster-kit[cli]'", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:  # while it loads; afterwards each command ends itself
        sys.exit(130)
    rck.main(prog_name="rck")
