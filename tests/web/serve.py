"""A child that serves one of the examples with uvicorn on a port of its own."""

from __future__ import annotations

import importlib
import socket

import uvicorn

from redis_cluster_kit.testing import emit


def serve(module: str) -> None:
    """Serve `module.app` until SIGTERM."""
    app = importlib.import_module(module).app
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        emit("serving", port=listening.getsockname()[1])
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
