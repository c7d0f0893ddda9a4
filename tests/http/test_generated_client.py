"""A client in TypeScript, generated from the OpenAPI document: the program of docs/guides/http.md."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import trio

import headway
from headway import field

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".venv/node/node_modules"
(PROGRAM,) = re.findall(r"^```typescript\n(.*?)^```", (ROOT / "docs/guides/http.md").read_text(), re.M | re.S)


@headway.message
class Team:
    members: list[str] = field(1)


@pytest.mark.wide
@pytest.mark.timeout(200)
async def test_generated_client_writes_and_reads(tmp_path: Path) -> None:
    """The program compiles without an error of types, and prints what it has written."""
    if not TOOLS.exists():
        if os.environ.get("HEADWAY_NEEDS_NODE"):
            pytest.fail(f"{TOOLS} is missing: `make any-node` failed")
        pytest.skip("no packages for Node.js: install npm and run `make any-node`")
    app = headway.App("staff")
    app.type("staff", "v1", "Team", Team)
    os.symlink(TOOLS, tmp_path / "node_modules")
    (tmp_path / "package.json").write_text('{"type": "module"}')

    async def run(*command: str) -> str:
        done = await trio.run_process(command, cwd=tmp_path, capture_stdout=True, stderr=subprocess.STDOUT, check=False)
        assert done.returncode == 0, done.stdout.decode()
        return done.stdout.decode()

    async with headway.open_engine(
        "memory:", app, network=headway.Network(http="127.0.0.1:0", insecure=True)
    ) as engine:
        assert engine.http is not None
        where = f"http://{engine.http}"
        (tmp_path / "client.ts").write_text(PROGRAM.replace("http://127.0.0.1:8080", where))
        await run("node_modules/.bin/openapi-typescript", f"{where}/api/openapi.json", "-o", "schema.d.ts")
        await run("node_modules/.bin/tsc", "--strict", "--target", "es2022", "--module", "nodenext", "client.ts")
        assert await run("node", "client.js") == "[ 'ada' ]\n"
