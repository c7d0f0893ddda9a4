"""A plan gives the same story in every process, and expected differences between two runs do not count."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import headway
from headway import field
from headway.testing import simulation
from headway.testing.simulation import Setting, run
from headway.testing.simulation.oracles import shown
from headway.testing.simulation.stories import timeline


@headway.message
class Certificate:
    host: str = field(1)


class Authority:
    """An outside service that takes a key with each request and carries out each key only once."""

    def __init__(self) -> None:
        self.issued: dict[str, str] = {}
        self.hosts: set[str] = set()

    async def issue(self, key: str, host: str) -> None:
        self.issued.setdefault(key, host)
        self.hosts.add(host)


def keyed(process: simulation.Process) -> headway.App:
    """Use the resource's uid as the key of a request."""
    app = headway.App("pki")
    certificate = app.type("pki", "v1", "Certificate", Certificate)

    @app.controller(manages=certificate)
    async def certificates(rt: headway.Runtime, request: headway.Request[Certificate]) -> None:
        found = rt.resource(request)
        if found is not None and rt.controller not in found.status:
            await process.outside.issue(found.uid, found.data.host)
            async with rt.conditions(found) as conditions:
                conditions.set("Issued", True)

    return app


async def two(world: simulation.World) -> None:
    for name in ("web", "mail"):
        await world.client.apply(world.type("Certificate").new(name, Certificate(host=name)))
    await world.wait_idle()


PLANS = ("crash_after(1)", "restore(1, 5)", "server_restart(2)", "commit_late(1, 30.0)", "lease_lost(2)")


def stories() -> str:
    """Return the complete stories of some plans with two processes."""
    lines: list[str] = []
    for line in PLANS:
        plan = simulation.Plan.parse(line)
        result = run(Setting(app=keyed, scenario=two, outside=Authority, processes=2, quiet=60.0), plan)
        lines += [shown(result.outside), *map(str, result.findings), *timeline(result.trace)]
    return "\n".join(lines)


@pytest.mark.wide
def test_story_is_the_same_in_every_process() -> None:
    program = "from tests.simulation.test_same_everywhere import stories; print(stories())"
    stories: list[str] = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        stories.append(done.stdout)
    assert stories[0] == stories[1]
    assert "step 1" in stories[0]
