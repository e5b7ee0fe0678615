"""A FastAPI front end that hosts nothing: it calls entities, which live in the processes of `host`.

Served by `uvicorn examples.web.front:app`. The probes are under `/internal`, which no ingress should pass on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import FastAPI, Header, Path, Request
from fastapi.responses import JSONResponse

from redis_cluster_kit import ClusterError, SendTimeoutError
from redis_cluster_kit.asgi import probes

from .shop import Page, make_cluster

PageId = Annotated[str, Path(pattern=r"^[\w.-]{1,64}$")]
IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=128)]

cluster = make_cluster(hosting=False)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    async with cluster:
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/internal", probes(cluster))


@app.post("/pages/{page}/visits")
async def visit(page: PageId, idempotency_key: IdempotencyKey = None) -> int:
    """Count a visit; repeated with the same Idempotency-Key it has one effect and one answer."""
    return await cluster.entity(Page, page).visit.options(idempotency_key=idempotency_key)()


@app.get("/pages/{page}/visits")
async def visits(page: PageId) -> int:
    """Say how many there were."""
    return await cluster.entity(Page, page).visits()


@app.exception_handler(ClusterError)
async def failed(_: Request, error: ClusterError) -> JSONResponse:
    """503: ask again. 504: ask again with the same key, for the message may still be handled."""
    if isinstance(error, SendTimeoutError):
        return JSONResponse({"error": error.reason}, 504)
    if error.is_retryable:
        return JSONResponse({"error": error.reason}, 503, {"retry-after": "1"})
    return JSONResponse({"error": error.reason}, 500)
