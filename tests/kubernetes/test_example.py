"""The example's operator on a cluster of its own, by the program that `make -C examples/kubernetes run` starts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.examples.fleet_kit import ROOT
from tests.helpers.etcd_server import need_etcd
from tests.helpers.kube_server import need_kube


@pytest.mark.kube
def test_cluster_is_as_asked_after_edits_and_kills() -> None:
    """One turn of the story."""
    need_kube()
    environment = {**os.environ, "HEADWAY_ETCD": str(need_etcd().path)}
    command = [sys.executable, "-m", "examples.kubernetes", "--for", "1"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all is as asked") == 4
    # No process is left.
    assert subprocess.run(["pgrep", "-f", done.stdout.splitlines()[0].split()[-1]], check=False).returncode == 1
