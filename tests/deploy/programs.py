"""The programs of the manifests as child processes, with stores of a test's own."""

from __future__ import annotations

from redis_cluster_kit.testing import ChildProcess

from .manifests import ROOT, container_of, environment_of

PORT_OF = {"shop-host": "PROBES_PORT", "shop-web": "UVICORN_PORT"}


def child_of(deployment: str, stores: dict[tuple[str, str], str], **env: str) -> ChildProcess:
    """The container's process: its command and its variables, but for stores and what `env` says."""
    python, option, module, *arguments = container_of(deployment)["command"]
    assert (python, option) == ("python", "-m")
    own = environment_of(deployment, stores) | env
    return ChildProcess(module, *arguments, env=own, pythonpath=[ROOT])
