"""What a process of the command line loads: it starts as fast as that allows."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import trio

from headway import connect
from tests.cli.served import TEAM, apps

PROGRAM = """
import gc, sys
from headway.cli.__main__ import program
sys.argv = ["headway", *{arguments}]
try:
    program()
finally:
    print()
    print("collects" if gc.isenabled() else "off", *sys.modules)
"""
FIRST = {"headway", "headway._imported_later", "headway._version", "headway.cli"}
FIRST |= {f"headway.cli.{each}" for each in ("__main__", "_main", "_written")}
"""The modules of Headway that every command loads."""
OPTIONS = {"headway.cli._exits", "headway.cli._target", "headway.errors"}


def loaded(*arguments: str, **environment: str) -> set[str]:
    """Return the modules that a process of `headway` has loaded at its end, and "collects" if its collector is on."""
    command = [sys.executable, "-W", "error", "-c", PROGRAM.format(arguments=arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def of_headway(modules: set[str]) -> set[str]:
    return {each for each in modules if each.partition(".")[0] == "headway"}


@pytest.mark.parametrize(
    ("arguments", "more"),
    [(["--version"], set()), (["--help"], set()), (["completion", "bash"], OPTIONS | {"headway.cli._completion"})],
)
def test_answer_that_needs_nothing_of_headway_loads_nothing_of_it(arguments: list[str], more: set[str]) -> None:
    found = loaded(*arguments)
    assert of_headway(found) == FIRST | more
    assert not {"trio", "asyncio", "betterproto2", "importlib.metadata", "difflib", "yaml", "collects"} & found


def test_completion_of_commands_loads_none_of_them() -> None:
    """Each press of the key is a process."""
    shell = {"_HEADWAY_COMPLETE": "bash_complete", "COMP_WORDS": "headway ", "COMP_CWORD": "1"}
    code = PROGRAM.format(arguments=()).replace("sys.argv = [", 'sys.argv[0] = "headway"\n[')
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | shell)
    *offered, _, modules = done.stdout.splitlines()
    assert {"plain,apply", "plain,get", "plain,work"} <= set(offered)
    assert of_headway(set(modules.split())) == FIRST


async def test_get_loads_the_client_and_nothing_of_a_server(server: str) -> None:
    """It has no store, no service, no controller and no formats of files. Its work has the garbage collector."""
    async with connect(server, *apps) as client:
        await client.write(TEAM.new("core"))
    found = await trio.to_thread.run_sync(loaded, "--server", server, "get", "team", "core")
    assert "collects" in found
    parts = {each.split(".")[1] for each in of_headway(found) if "." in each}
    client_side = {"api", "base", "client", "errors", "events", "login", "protobuf", "resource", "rpc", "subscription"}
    assert parts == {"_gen", "_imported_later", "_version", "cli"} | client_side
    commands = "_apply _completing _completion _describe _events _live _log _named _serve _store _why"
    assert not {f"headway.cli.{each}" for each in commands.split()} & found
    assert not {"yaml", "rich", "structlog", "opentelemetry", "sqlite3", "headway._gen.etcdserverpb"} & found
    assert len(of_headway(found)) <= 178
    assert len(found) <= 580
