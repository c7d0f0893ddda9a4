"""The demonstration with real Envoys shows every step, and no call fails that should not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mesh.demo.envoy import NO_ENVOY, find_envoy

pytestmark = [
    pytest.mark.envoy,
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_envoy() is None, reason=NO_ENVOY),
]
MESH = Path(__file__).parents[3] / "examples/mesh"
STEPS = [
    "shop-1 answers web, through the proxies of both",
    "the route sends 10 % to canary",
    "the route sends 90 % to canary",
    "the route sends everything to shop again",
    "web may not call shop any more",
    "web may call shop again",
    "a workload is added",
    "shop is killed: backup-1 answers",
    "shop is back",
    "the root is rotated",
    "the control plane is killed",
    "the control plane is back",
    "the proxy of shop-2 is killed",
    "the proxy of shop-2 is back",
    "headway why: Condition Complete is FALSE",
]


def test_make_run_shows_every_step_and_no_call_fails() -> None:
    """It ends by itself after one round."""
    command = ["make", "--no-print-directory", "-C", str(MESH), "run", "FOR=1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    shown = [line.partition(" s  ")[2] for line in lines[:-1]]
    assert len(shown) == len(STEPS), done.stdout
    for line, step in zip(shown, STEPS, strict=True):
        assert line.startswith(step)
    assert lines[-1].endswith(" calls, of which 0 ended otherwise than they should have")
