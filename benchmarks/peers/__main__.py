"""`python -m benchmarks.peers <module> consume|produce …`: one side of a peer, in its environment."""

from __future__ import annotations

import importlib
import sys

if __name__ == "__main__":
    peer = importlib.import_module(f"benchmarks.peers.{sys.argv[1]}")
    {"consume": peer.consume, "produce": peer.produce}[sys.argv[2]]()
