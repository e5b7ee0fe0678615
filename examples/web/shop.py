"""What all applications here share: a counter for each page, kept by the cluster.

The stores come from the environment, as in production: `SHOP_REDIS`, `SHOP_DATABASE`.
"""

from __future__ import annotations

import os

import msgspec

from redis_cluster_kit import Cluster, Entity, Settings, rpc


class Visits(msgspec.Struct):
    count: int = 0


class Page(Entity[Visits], name="page"):
    """One page of the shop."""

    @rpc
    async def visit(self) -> int:
        self.state.count += 1
        return self.state.count

    @rpc(readonly=True)
    async def visits(self) -> int:
        return self.state.count


def make_cluster(*, hosting: bool = True) -> Cluster:
    """Return the cluster that this process joins when it starts; without hosting it only calls."""
    return Cluster(
        os.environ["SHOP_REDIS"],
        os.environ.get("SHOP_DATABASE"),
        namespace=os.environ.get("SHOP_NAMESPACE", "shop"),
        entities=[Page] if hosting else [],
        hosting=hosting,
        settings=Settings.from_env(),
    )
