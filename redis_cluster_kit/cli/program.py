"""Puts the commands of `rck` together; what each does is in its own module."""

from __future__ import annotations

from importlib.metadata import version

import click

from .bench import bench
from .completion import completion
from .cron import cron
from .dead_letters import deadletters
from .demo.command import demo
from .doctor.command import doctor
from .entity import entity
from .executions import executions
from .keys import keys
from .migrate import migrate
from .run import run
from .shards import shards
from .singletons import singletons
from .status import status


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(version("redis-cluster-kit"), message="%(prog)s %(version)s")
def rck() -> None:
    """See, check, prepare and run a cluster of redis_cluster_kit.

    Where the stores are comes from RCK_REDIS, RCK_DATABASE and RCK_NAMESPACE or from options; everything
    else from the same RCK_* variables as the services have. Exit codes: 0 done, 1 a problem was found,
    2 it could not be done.
    """


for command in (
    *(status, shards, entity, singletons, executions, cron, deadletters, keys),
    *(doctor, migrate, run, demo, bench, completion),
):
    rck.add_command(command)
