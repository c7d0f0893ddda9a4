"""A controller's runs on a real cluster under random faults. `run_machine.py` has the machine.

`make test-kube FOR=600` uses fresh seeds.

A failure prints its seed and the steps of its example. It is not shrunk and may not repeat, since the time is real.
"""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.helpers.kube_server import running_kube
from tests.kubernetes.kube_processes import World
from tests.kubernetes.run_machine import KubeRunMachine

GIVEN = os.environ.get("HEADWAY_KUBE_SECONDS")
SECONDS = float(GIVEN or "0")
SEED = int(os.environ.get("HEADWAY_KUBE_SEED", "0"))
FLAGS = ("--storage-media-type=application/json", "--etcd-compaction-interval=0")

pytestmark = pytest.mark.kube

# The first example of each round is the simplest one, which takes a second.
ROUND = settings(
    max_examples=3 if GIVEN else 2,
    stateful_step_count=25 if GIVEN else 12,
    phases=[Phase.generate],
    deadline=None,
    database=None,
    derandomize=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two API servers on one etcd. The objects in it are JSON, which the record of the machine reads."""
    folder = tmp_path_factory.mktemp("kube-runs")
    with running_kube(folder / "cluster", FLAGS) as first, first.second(FLAGS) as second:
        made = World(first, second, folder)
        try:
            yield made
        finally:
            made.close()
            # Sockets of canceled calls: see conftest.py.
            gc.collect()


@pytest.mark.parametrize("large", [False, True])
def test_late_changes_are_mapped_and_not_twice(world: World, large: bool) -> None:
    """A second watch, or a list, is ahead of the open one."""

    class Machine(KubeRunMachine):
        pass

    Machine.world = world
    machine = Machine()
    machine.open(concurrency=2, scoped=False, told=False, large=large)
    machine.converge()
    for kind in ("pools", "members"):
        machine.overtake(kind=kind, member="m3", changes=[])
    machine.nothing_is_broken()
    machine.teardown()


def test_c6_a_kill_hides_no_deletion(world: World) -> None:
    """Before a held watch brings what was created and deleted, the process records how far it is, and is killed."""

    class Machine(KubeRunMachine):
        pass

    Machine.world = world
    machine = Machine()
    machine.open(concurrency=2, scoped=False, told=False, large=False)
    machine.converge()
    machine.hide(member="m3")
    machine.nothing_is_broken()
    machine.teardown()


@pytest.mark.timeout(SECONDS + 300)
def test_contract_holds_under_faults(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    first = SEED or (random.SystemRandom().randrange(1, 10_000_000) if GIVEN else 1)

    class Machine(KubeRunMachine):
        heavy = 3 if GIVEN else 1

    Machine.world = world
    began, number = time.monotonic(), first
    while number == first or time.monotonic() - began < SECONDS:
        try:
            run_state_machine_as_test(seed(number)(Machine), settings=ROUND)
        except Exception as error:  # noqa: BLE001  # raised again below
            with capsys.disabled():
                print(f"\nHEADWAY_KUBE_SEED={number}:\n" + "\n".join(world.log))
            raise world.failure or error from None
        number += 1
    with capsys.disabled():
        print(
            f"\n{number - first} rounds of runs on a cluster by seeds from {first} on, {time.monotonic() - began:.0f} s"
        )
