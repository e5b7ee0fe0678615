"""A FastAPI application: joins the cluster in its lifespan, and mounts the probes at the root."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from redis_cluster_kit.asgi import probes

from .shop import Page, make_cluster

cluster = make_cluster()


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    async with cluster:
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/visit/{page}")
async def visit(page: str) -> int:
    """Count a visit, whichever pod was asked."""
    return await cluster.entity(Page, page).visit()


app.mount("/", probes(cluster))
