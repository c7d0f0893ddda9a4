"""The commands of the guide, run by a shell with curl against the program of the guide, print what the guide shows."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio

import headway

GUIDE = (Path(__file__).parent.parent.parent / "docs/guides/http.md").read_text()


def expected(shown: str) -> str:
    """Return a pattern for the output that the guide shows, in which ``…`` stands for anything."""
    return ".*?".join(map(re.escape, shown.split("…")))


def steps(block: str) -> list[tuple[str, str]]:
    """Return the commands of a block and their outputs. An assignment is part of the command after it."""
    joined = re.sub(r"^\$ (\w+=.*)\n\$ ", r"$ \1; ", block, flags=re.MULTILINE)
    return re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", joined, re.MULTILINE)


@pytest.mark.wide
async def test_commands_of_the_guide_print_what_it_shows() -> None:
    """They are run in their order. `test_generated_client.py` has those that make a client for Node.js."""
    assert shutil.which("curl"), "the guide needs curl"
    program = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)[0]
    names: dict[str, Any] = {"__name__": __name__}
    exec(program.partition("async def main")[0], names)
    blocks = re.findall(r"^```console\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    blocks = [block for block in blocks if "npm" not in block]
    ran = 0
    async with headway.open_engine(
        "memory:", names["app"], network=headway.Network(http="127.0.0.1:0", insecure=True)
    ) as engine:
        assert engine.http is not None
        for block in blocks:
            for command, shown in steps(block):
                shell = ["sh", "-c", command.replace("127.0.0.1:8080", engine.http)]
                with trio.fail_after(30):
                    done = await trio.run_process(shell, capture_stdout=True, stderr=subprocess.STDOUT, check=False)
                said = done.stdout.decode()
                said = re.sub(r"curl: \(28\).*\n", "", said)
                assert re.fullmatch(expected(shown), said, re.DOTALL), f"{command}\n{said}"
                ran += 1
    assert ran == 10
