"""Run by `nox -s wheel` where only the built wheel is installed: every script it carries can be called.

Each is sent to a real server with nothing but names and numbers in its place; any answer of the script's own
will do, a script that does not load or compile will not.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import redis_cluster_kit
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.redis_access import Keyspace, Lanes, RedisUrl, Script
from redis_cluster_kit.redis_access.scripts import script_names
from redis_cluster_kit.settings import RedisSettings


async def main() -> None:
    package = Path(redis_cluster_kit.__file__).parent
    if "site-packages" not in package.parts:
        sys.exit(f"this must run on the installed wheel, not on {package}")
    names = script_names()
    if not names:
        sys.exit("the wheel carries no scripts")
    keyspace = Keyspace("wheel", 1)
    with RedisServer.start() as server:
        async with Lanes(RedisUrl.parse(server.url), RedisSettings()) as lanes:
            for name in names:
                outcome = await call(Script.load(name), lanes, keyspace)
                print(f"{name:24} {outcome}")
    print(f"{len(names)} scripts called")


async def call(script: Script, lanes: Lanes, keyspace: Keyspace) -> str:
    header = script.header
    values = {key: f"rck:{{wheel:00}}:{key}:default:0" for key in header.keys}
    values |= dict.fromkeys(header.arguments, "1")
    each: list[dict[str, str]] = []
    if header.each_keys or header.each_arguments:
        group = {key: f"rck:{{wheel:00}}:{key}:default:0" for key in header.each_keys}
        each = [group | dict.fromkeys(header.each_arguments, "1")]
    outcome = await script(lanes, keyspace.home_slot, each=each, **values)
    return " ".join([outcome.word, *(answer.word for answer in outcome.each)])


asyncio.run(main())
