"""The host of the pages, `python -m examples.web.host`: owns shards until SIGTERM, serves only probes.

The probes have a thread and an event loop of their own. So they answer from before the cluster is joined
until it is left, and can tell of the cluster's event loop while that one is blocked.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

import anyio
import uvicorn

from redis_cluster_kit import Cluster
from redis_cluster_kit.asgi import probes

from .shop import make_cluster


@contextmanager
def serving_probes(cluster: Cluster, port: int) -> Generator[None]:
    """Serve the probes while the block runs; a port that is taken is an error at once."""
    with socket.create_server(("0.0.0.0", port)) as listening:
        server = uvicorn.Server(uvicorn.Config(probes(cluster), log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="probes")
        thread.start()
        try:
            yield
        finally:
            server.should_exit = True
            thread.join()


async def host(cluster: Cluster) -> None:
    """Join and serve; SIGTERM before the cluster is joined ends the joining."""
    with anyio.CancelScope() as joining:
        # The first process of a container has no default for signals: without this they would be lost.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, joining.cancel)
        async with cluster:
            await cluster.run_forever()


def main() -> None:
    """Be a runner."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    cluster = make_cluster()
    with serving_probes(cluster, int(os.environ.get("PROBES_PORT", "8001"))):
        anyio.run(host, cluster)


if __name__ == "__main__":
    main()
