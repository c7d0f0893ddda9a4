"""A Hypothesis state machine whose rules are the faults, and strategies for what users ask for.

A subclass of the machine adds rules for what users do:

class Accounts(simulation.Machine):
    app = app

    @rule(members=st.lists(st.sampled_from(["ada", "grace"]), unique=True))
    def write(self, members: list[str]) -> None:
        self.call(self.world.client.apply, TEAM.new("core", Team(members=members)))

TestAccounts = Accounts.TestCase
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import trio
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from headway.controller import App
from headway.errors import DeclarationError
from headway.protobuf import Payload
from headway.resource import RESERVED_GROUPS, ResourceType
from headway.testing._live_run import LiveRun
from headway.testing._payloads import FEW_VALUES, payloads
from headway.testing.simulation import faults
from headway.testing.simulation._run import end, judged
from headway.testing.simulation.oracles import Always, Finding
from headway.testing.simulation.stories import save_page, timeline
from headway.testing.simulation.world import Beside, GivenUp, Invariant, Setting, World, own_clocks

T = TypeVar("T", bound=Payload)

# Two faults need a revision, and the clock has a rule of its own.
_STEP_FAULTS = [
    fault for fault in faults.STEP_FAULTS if fault not in (faults.RestartBehind, faults.Restore, faults.ClockJump)
]


class Machine(LiveRun, RuleBasedStateMachine):
    """A state machine with rules for faults. A subclass adds rules for what users do.

    When a machine ends, all faults heal. Then the final checks of `explore` must hold. A machine has no run without
    faults to compare with, so check the end state in ``holds``.

    Attributes:
        app: as for `explore`, like ``processes``, ``outside``, ``holds``, ``always``, ``beside`` and ``quiet``.
        world: the world, with ``client`` and ``wait_idle()``.
    """

    app: ClassVar[Any] = None
    processes: ClassVar[int] = 1
    outside: ClassVar[Callable[[], Any] | None] = None
    holds: ClassVar[Sequence[Invariant]] = ()
    always: ClassVar[Sequence[Always]] = ()
    beside: ClassVar[Sequence[Beside]] = ()
    quiet: ClassVar[float | None] = 120.0

    world: World

    @initialize()
    def open_the_world(self) -> None:
        """Start the server and the processes."""
        given = type(self).app
        if not (isinstance(given, App) or callable(given)):
            raise DeclarationError(
                f"{type(self).__name__}.app is {given!r}: set it to the App, or to a function that returns it"
            )
        self._setting = Setting(
            app=given,
            scenario=_nothing_more,
            processes=self.processes,
            outside=type(self).outside,
            holds=tuple(self.holds),
            always=tuple(self.always),
            beside=tuple(self.beside),
            quiet=self.quiet,
        )
        self._clocks = own_clocks(*self._setting.owners)
        self._clocks.__enter__()
        self.world = self.make_world()

        async def live(*, task_status: trio.TaskStatus[None]) -> None:
            async with self.world.opened():
                task_status.started()
                await trio.sleep_forever()

        async def start() -> None:
            await self.nursery.start(live)

        self.call(start)

    def make_world(self) -> World:
        """Return the world. Nothing runs yet."""
        return World(self._setting, faults.Plan(), clock=self.clock)

    # --- faults ---

    @rule(fault=st.sampled_from(_STEP_FAULTS))
    def harm_the_next_call(self, fault: type[faults.StepFault]) -> None:
        """Apply a fault to the reconcilers' next call."""
        self.world.injector.next_call(fault)

    @rule(fault=st.sampled_from([faults.Stall, faults.Drop, faults.Repeat, faults.HistoryLost]), data=st.data())
    def harm_a_stream(self, fault: type[faults.ChangeFault], data: st.DataObject) -> None:
        """Apply a fault to the streams of one type."""
        kinds = sorted(each.kind for each in self.world.types if each.kind[0] not in RESERVED_GROUPS)
        kind = data.draw(st.sampled_from(kinds))
        self.world.harm_streams(fault(".".join(kind), self.world.store.position.revision))

    @rule(data=st.data(), checkpoints=st.sampled_from([0, 1, 3, 10, 30, 100]))
    def crash(self, data: st.DataObject, checkpoints: int) -> None:
        """Kill a process, now or after this number of its Trio checkpoints."""
        self.world.crash(data.draw(st.integers(0, self.processes - 1)), checkpoints=checkpoints)

    @rule(seconds=st.sampled_from([0.01, 1.0, 20.0, 120.0]))
    def pass_time(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.sleep(seconds)

    @rule()
    def run_on(self) -> None:
        """Run every task until it waits."""
        self.run_until_blocked()

    # --- the end ---

    def teardown(self) -> None:
        """Heal all faults and check the end state."""
        try:
            if hasattr(self, "world") and not self._over:
                self._check_end()
        finally:
            super().teardown()
            if hasattr(self, "_clocks"):
                self._clocks.__exit__(None, None, None)

    def _check_end(self) -> None:
        findings: list[Finding] = []
        self.call(self._converge, findings)
        result = judged(self.world, self._setting, findings)
        found = result.findings
        if found:
            lines = [*map(str, found), "", *timeline(result.trace, found), *save_page(None, result, found)]
            raise AssertionError("\n".join(lines))

    async def _converge(self, findings: list[Finding]) -> None:
        try:
            await end(self.world, self._setting, findings)
        except GivenUp as error:
            findings.append(Finding("converges", str(error)))


async def _nothing_more(_: World) -> None:
    """Do nothing: the rules have done what users do."""


# --- strategies ---


def desired(wanted: ResourceType[T], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[T]:
    """Return a strategy for payloads of a type.

    Payloads are small and often equal, so that a chain of them has much to undo. Only payloads that the type's
    ``validate`` accepts are drawn.

    Args:
        fields: strategies for the fields of the message whose values have a meaning, such as names of existing
            resources.

    Raises:
        DeclarationError: if the message has no such field.
    """
    return payloads(wanted, FEW_VALUES, fields=fields)


def chains(
    wanted: ResourceType[T], *, most: int = 4, **fields: st.SearchStrategy[Any]
) -> st.SearchStrategy[list[T | None]]:
    """Return a strategy for the successive desired states of one resource. None stands for its deletion."""
    return st.lists(st.one_of(desired(wanted, **fields), st.none()), min_size=1, max_size=most)
