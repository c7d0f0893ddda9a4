"""The Go client of tests/go/client: grpc-go with its default options, as other users of the API have it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import trio

from tests.helpers.go_programs import need_go_program


async def run_go_client(where: str, *, patience: float = 60.0, **flags: object) -> dict[str, Any]:
    """Run the client against a server and return its outcome. `resource-client -help` lists the flags."""
    program: Path = need_go_program("resource-client")
    given = [f"-{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in flags.items()]
    with trio.fail_after(patience):
        done = await trio.run_process([str(program), f"-address={where}", *given], capture_stdout=True, check=False)
    assert done.returncode in (0, 1), subprocess.list2cmdline(given)
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def assert_none_failed(outcome: dict[str, Any]) -> None:
    """Fail with the client's output if a call failed, or its watch ended or missed a write."""
    assert (outcome["failed"], outcome["missed"], outcome["watch_failed"]) == (0, 0, ""), outcome
