"""A Starlette application: joins the cluster in its lifespan, and mounts the probes under `/internal`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from redis_cluster_kit.asgi import probes

from .shop import Page, make_cluster

cluster = make_cluster()


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncGenerator[None]:
    async with cluster:
        yield


async def visit(request: Request) -> PlainTextResponse:
    page = cluster.entity(Page, request.path_params["page"])
    return PlainTextResponse(str(await page.visit()))


app = Starlette(
    routes=[Route("/visit/{page}", visit), Mount("/internal", probes(cluster))],
    lifespan=lifespan,
)
