"""What a world machine does at the end of an example: situations that its rules meet too rarely, one after another.

Each of them follows whatever the rules of the example have done, and takes keys from a process that still works on
them: it is paused, cut off, stopped, or its call fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from hypothesis import strategies as st

from headway.testing import simulation
from headway.testing.simulation import faults


class World(Protocol):
    """What the situations need of the machine."""

    world: simulation.World

    def write(self, name: str, members: list[str]) -> None: ...

    def delete(self, name: str) -> None: ...

    def end_a_run(self, at: int, controller: str) -> None: ...

    def linger(self, **seconds: float) -> None:
        """Let each reconcile of these controllers wait before it acts, and those of others not."""
        ...

    def count_again(self, at: int, login: str) -> None: ...

    def counted(self) -> set[str]: ...

    def call(self, function: Callable[..., Any], *arguments: object) -> Any: ...

    def sleep(self, seconds: float) -> None: ...

    def settle(self) -> None:
        """Wait until everything is done, and check the contract."""
        ...


def _new_team(it: World, *make: Callable[[int], faults.StepFault]) -> None:
    """Write both teams while their next calls are harmed. One of them is new, so that it needs a finalizer."""
    it.delete("a")
    it.settle()
    it.world.injector.next_call(*make)
    it.write("a", ["grace", "tim"])
    it.write("b", ["ada"])


def _paused(it: World) -> None:
    """A process is paused before a call until another one has its leases. Then its call goes out first."""
    _new_team(it, faults.Pause)
    it.sleep(60.0)


def _paused_alone(it: World, at: int) -> None:
    """The same with no other process that could acquire the leases."""
    other = it.world.processes[1 - at]
    it.call(other.end, other.make_app, 30.0)
    it.settle()
    _new_team(it, faults.Pause)
    it.sleep(60.0)
    other.begin()


def _cut_off(it: World, at: int) -> None:
    """A process cannot renew its leases while it reconciles."""
    process = it.world.processes[at]
    it.linger(accounts=30.0, disks=30.0, tallies=30.0)
    # Each time something else, so that there is something to do.
    it.write("a", ["ada", ["tim", "grace"][at]])
    it.write("b", [["grace", "tim"][at]])
    it.sleep(0.5)
    if process.life:
        process.link.suspend(40.0)
    it.sleep(45.0)
    it.linger()


def _cut_off_in_turn(it: World) -> None:
    """Of a singleton, only the process that holds its lease can rely on it for too long."""
    for at in (0, 1):
        _cut_off(it, at)
        it.settle()


def _joined(it: World, at: int) -> None:
    """A process that starts again takes its shards from the one that reconciles their keys, and has more of them.

    The keys of the accounts that are deleted then are in no cache.
    """
    process = it.world.processes[at]
    it.write("a", ["ada", "grace", "tim"])
    it.settle()
    it.call(process.end, process.make_app, 30.0)
    # The other process takes the shards when it has listed the members.
    it.sleep(10.0)
    it.settle()
    it.linger(disks=25.0, tallies=25.0)
    it.write("a", [])
    it.write("b", [])
    it.sleep(0.5)
    process.begin()
    it.sleep(40.0)
    it.linger()


def _lost(it: World) -> None:
    """The answers to the first calls for new teams are lost."""
    _new_team(it, faults.AnswerLost, faults.CommitLate, faults.AnswerLost)
    it.sleep(2.0)


def _clean_up_fails(it: World) -> None:
    """The clean-up of a team fails outside, for a second."""
    it.write("a", ["ada"])
    it.settle()
    it.world.outside.refuses = True
    it.delete("a")
    it.sleep(1.0)
    it.world.outside.refuses = False


def _runs_end(it: World) -> None:
    """A run ends in each process, of the singleton where it runs and of a sharded controller with keys to do.

    Nothing in the store leads to those keys.
    """
    for team in ("a", "b"):
        it.write(team, [])
    it.settle()
    # Until the checkpoint is above the deletions.
    it.sleep(10.0)
    it.linger(tallies=5.0)
    for at in (0, 1):
        for login in ("ada", "grace"):
            it.count_again(at, login)
    it.sleep(0.5)
    it.counted()
    lives = [process.lives for process in it.world.processes]
    for at in (0, 1):
        it.end_a_run(at, "tallies")
        it.end_a_run(at, "accounts")
    it.linger()
    it.settle()
    if lives == [process.lives for process in it.world.processes]:
        assert it.counted() >= {"ada", "grace"}, "C6: a key that was pending when its run ended is forgotten"


ENDINGS: dict[str, Callable[[World], None]] = {
    "a process is paused before a call": _paused,
    "p1 is alone and paused": lambda it: _paused_alone(it, 0),
    "p2 is alone and paused": lambda it: _paused_alone(it, 1),
    "each process is cut off": _cut_off_in_turn,
    "p1 joins": lambda it: _joined(it, 0),
    "p2 joins": lambda it: _joined(it, 1),
    "answers are lost": _lost,
    "a clean-up fails": _clean_up_fails,
    "both runs end": _runs_end,
}
Ending = tuple[str, tuple[int, int] | None]
"""A situation, and the process that is killed meanwhile with the number of its checkpoints before; None for none."""
crashes = st.none() | st.tuples(st.integers(0, 1), st.sampled_from([10, 30, 100, 300]))
crash_lists = st.lists(crashes, min_size=4, max_size=4)
