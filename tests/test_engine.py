"""`open_engine` owns every task that it starts, and does not change the errors that leave its block."""

from __future__ import annotations

import inspect
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import headway
from headway import testing
from headway.access import Access, Authorizer
from headway.engine import EngineOptions
from headway.errors import DeclarationError
from headway.events import Reconciled
from headway.testing import Fault
from tests.helpers.resources import Team
from tests.helpers.rig import Rig


def tasks_below() -> set[trio.lowlevel.Task]:
    """Return all tasks below the test's own task."""
    found: set[trio.lowlevel.Task] = set()
    waiting = list(trio.lowlevel.current_task().child_nurseries)
    while waiting:
        for task in waiting.pop().child_tasks:
            found.add(task)
            waiting.extend(task.child_nurseries)
    return found


async def test_no_task_outlives_the_block(autojump_clock: MockClock) -> None:
    """Every stream, run and worker ends with the block, whatever its state."""
    rig = Rig(autojump_clock, concurrency=3)
    rig.pools.pause = 100.0
    async with rig.open():
        rig.channel.stall(rig.pools.summary)
        await rig.write_pool("a")
        await wait_all_tasks_blocked()
        names = {task.name for task in tasks_below()}
        assert {"controller test/pools", "the stream of test.v1.Pool", "priming test.v1.Summary"} <= names
        rig.channel.release(rig.pools.summary)
        await trio.sleep(1)
        assert "worker 2 of test/pools" in {task.name for task in tasks_below()}
    assert not tasks_below()


class Mine(Exception):
    """An error of the caller."""


async def test_error_of_the_block_leaves_unwrapped(autojump_clock: MockClock) -> None:
    """The error keeps its cause and traceback, and every task has ended."""
    rig = Rig(autojump_clock)
    rig.pools.pause = 100.0

    async def fail() -> None:
        async with rig.open():
            await rig.write_pool("a")
            await trio.sleep(1)
            raise Mine("as it was") from LookupError("why")

    with pytest.raises(Mine) as caught:
        await fail()
    assert str(caught.value) == "as it was"
    assert isinstance(caught.value.__cause__, LookupError)
    assert not tasks_below()


async def test_exception_group_of_the_block_stays_a_group(autojump_clock: MockClock) -> None:
    rig = Rig(autojump_clock)
    with pytest.raises(ExceptionGroup) as caught:
        async with rig.open():
            raise ExceptionGroup("both", [Mine("one"), Mine("two")])
    assert [str(error) for error in _leaves(caught.value)] == ["one", "two"]


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]


@asynccontextmanager
async def _opens_a_text() -> AsyncIterator[str]:
    yield "staff.db"


async def test_block_can_be_canceled(autojump_clock: MockClock) -> None:
    """A deadline around the engine ends it, and no other error leaves the block."""
    rig = Rig(autojump_clock)
    rig.pools.pause = 100.0
    with trio.move_on_after(5) as scope:
        async with rig.open():
            await rig.write_pool("a")
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert autojump_clock.current_time() == pytest.approx(5, abs=1.01)
    assert not tasks_below()


@pytest.mark.parametrize("given", ["App", None, headway.App])
async def test_argument_that_is_not_an_app_is_refused(given: object) -> None:
    """The error shows the value."""
    with pytest.raises(DeclarationError, match=r"expected headway\.App objects after the store or the endpoints, not "):
        async with headway.open_engine("memory:", given):  # type: ignore[arg-type]  # that is the point
            pass


def _served(*listen: Any, **options: Any) -> Any:
    return headway.open_engine("memory:", network=headway.Network(*listen, **options))


def _timed(**durations: Any) -> Any:
    return headway.open_engine("memory:", timing=headway.Timing(**durations))


# Type checkers refuse these calls by themselves.
_open: Any = headway.open_engine
_open_for_tests: Any = testing.open_engine


@pytest.mark.parametrize(
    ("says", "opened"),
    [
        ("open_engine expects a store first.* not None", lambda: _open(None)),
        ("open_engine expects a store first.* not <headway", lambda: _open(headway.App("staff"))),
        ("open_engine expects a store first, .* not something that", lambda: _open(_opens_a_text())),
        (r"listen='127.0.0.1:0' must be a list of addresses, such as listen=\['127", lambda: _served("127.0.0.1:0")),
        (r"listen=\[7070\] must be a list", lambda: _served([7070], insecure=True)),
        ("gc_freeze='no' must be True or False", lambda: _open("memory:", gc_freeze="no")),
        ("check_isolation='yes' must be True or False", lambda: _open_for_tests("memory:", check_isolation="yes")),
        ("insecure='no' must be True or False", lambda: _served(insecure="no")),
        ("lease_ttl=0.5 must be from 1 to 3600 seconds", lambda: _timed(lease_ttl=0.5)),
        ("lease_ttl=5000 must be from 1 to 3600 seconds", lambda: _timed(lease_ttl=5000)),
        ("lag_limit=0 must be a number of seconds above 0", lambda: _timed(lag_limit=0)),
        ("access='access.yaml' must be an authorizer", lambda: _served(access="access.yaml")),
        ("access=<.*Access.*> must be an authorizer", lambda: _served(access=Access())),
        ("and not both", lambda: _served(["127.0.0.1:0"], insecure=True, access=Authorizer(Access()))),
        ("tls='x' must be a TLS context", lambda: _served(tls="x")),
        ("limits=5 must be limits, such as", lambda: _served(limits=5)),
        (
            r"network=5 must be a Network, such as network=headway\.Network\(\['",
            lambda: _open("memory:", network=5),
        ),
        (
            r"timing=5 must be a Timing, such as timing=headway\.Timing\(",
            lambda: _open("memory:", timing=5),
        ),
        (
            "wrap_channel=5 must be a function of a channel, such as",
            lambda: _open_for_tests("memory:", wrap_channel=5),
        ),
    ],
)
async def test_invalid_option_of_an_engine_is_refused(
    says: str, opened: Callable[[], AbstractAsyncContextManager[headway.Engine]]
) -> None:
    """The error names the option and shows a valid form."""
    with pytest.raises(DeclarationError, match=says):
        async with opened():
            pass


def test_engine_has_at_most_ten_parameters_and_tests_have_three_more() -> None:
    of_programs = inspect.signature(headway.open_engine).parameters
    of_tests = inspect.signature(testing.open_engine).parameters
    assert len({*of_programs, *EngineOptions.__annotations__} - {"options"}) <= 10
    assert {name: each for name, each in of_tests.items() if name in of_programs} == of_programs
    assert of_tests.keys() - of_programs.keys() == {"wrap_channel", "peer_links", "check_isolation"}


async def test_declaration_on_an_open_app_is_refused(autojump_clock: MockClock) -> None:
    """The declaration would have no effect. It is accepted before, between and after the blocks, and on another app."""
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)
    later = app.type("staff", "v2", "Team", Team)

    async def reconcile(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        """Do nothing."""

    async def beat(rt: headway.Runtime, found: headway.Resource[Team]) -> None:
        """Do nothing."""

    late: list[tuple[str, Callable[[], object]]] = [
        ("controller 'late'", lambda: app.controller(manages=team, name="late")(reconcile)),
        ("controller 'alive'", lambda: app.daemon(team, name="alive")(beat)),
        ("controller 'often'", lambda: app.timer(team, every=5, name="often")(beat)),
        ("this converter", lambda: app.converter(team, later, up=lambda each: each, down=lambda each: each)),
        ("this storage version", lambda: app.store_as(team)),
        ("type staff.v1.Late", lambda: app.type("staff", "v1", "Late", Team)),
    ]
    for number in range(2):
        async with headway.open_engine("memory:", app):
            async with headway.open_engine("memory:", app):
                pass
            for what, declare in late:
                with pytest.raises(
                    DeclarationError, match=f"app 'staff' is open and would ignore {what}: .* before open_engine"
                ):
                    declare()
            headway.App("other").type("staff", "v1", "Late", Team)
        with pytest.raises(headway.errors.StoreUnusable):
            async with headway.open_engine("sqlite:/nowhere/at/all.db", app):
                pass
        app.controller(manages=team, name=f"between-{number}")(reconcile)
    assert list(app.controllers) == ["between-0", "between-1"]
    for _, declare in late:
        declare()


async def test_engine_without_controllers_becomes_idle(autojump_clock: MockClock) -> None:
    """Only the engine's own controllers have to run, and they check their streams at short intervals."""
    async with headway.open_engine("memory:") as engine:
        with trio.fail_after(1):
            await engine.wait_idle()
    assert autojump_clock.current_time() < 0.1


# --- wait_idle ---


async def test_wait_idle_includes_changes_that_reconciles_make(autojump_clock: MockClock) -> None:
    """Outputs are mapped and reconciled before the wait ends."""
    rig = Rig(autojump_clock)
    async with rig.open():
        await rig.write_pool("a")
        await rig.write_member("m", "a")
        await rig.wait_idle()
        assert rig.witness.reconciles[-1].frontiers[rig.pools.summary.name] >= rig.store.commits[-1].revision


async def test_wait_idle_continues_over_failures_and_restarts(autojump_clock: MockClock) -> None:
    """The wait lasts while a key fails, a write is lost or a run ends."""
    rig = Rig(autojump_clock)
    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle()
        rig.channel.writes(Fault.FAILED, Fault.CONFLICT, Fault.LOST)
        rig.channel.raises(Fault.FAILED)
        await rig.write_member("m", "a")
        await rig.restart()
        await rig.wait_idle()
        assert await rig.summaries() == {"a": ["m"]}


async def test_wait_idle_does_not_wait_for_requested_requeues(autojump_clock: MockClock) -> None:
    """A key that is only queued for a later time does not count."""
    rig = Rig(autojump_clock)

    async def again(_: headway.Runtime, __: headway.Request) -> headway.RequeueAfter:
        return headway.requeue_after(1000)

    rig.pools.replace(again)
    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle(10)
        assert len(rig.witness.events_of(Reconciled)) >= 1


# --- Ctrl-C ---

PROGRAM = """
    import trio, headway
    from headway import field

    @headway.message
    class Thing:
        name: str = field(1)

    app = headway.App("stopped")
    THING = app.type("test", "v1", "Thing", Thing)

    @app.controller(manages=THING)
    async def things(rt, request):
        print("ready", flush=True)
        await trio.sleep_forever()

    async def main():
        async with headway.open_engine({store!r}, app) as engine:
            await engine.client.apply(THING.new("a"))
            await trio.sleep_forever()

    try:
        trio.run(main)
    except KeyboardInterrupt:
        print("stopped", flush=True)
"""


@pytest.mark.wide
@pytest.mark.parametrize("store", ["memory:", "sqlite:things.db"])
def test_interrupt_ends_the_program_soon_and_quietly(store: str, tmp_path: Path) -> None:
    """Ctrl-C leaves `trio.run` as KeyboardInterrupt, and only main prints anything.

    `tests/test_shutdown.py` tests that the end does not wait for time to pass. Here, it depends on the machine.
    """
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM.format(store=store)))
    with subprocess.Popen(
        [sys.executable, "-W", "error", program.name],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        out, error = child.communicate(timeout=40)

    assert (out, error, child.returncode) == ("stopped\n", "", 0)


async def test_controllers_of_two_apps_with_one_name_for_one_type_are_refused() -> None:
    """They would share a finalizer, so the clean-up of the slower one would never run."""
    billing, audit = headway.App("billing"), headway.App("audit")
    order = billing.type("shop", "v1", "Order", Team)
    audit.registry = billing.registry
    for app in (billing, audit):
        app.controller(manages=order, name="orders")(nothing)
    right = r"apps 'billing' and 'audit' both have a controller 'orders' of shop\.v1\.Order: .*name='audit-orders'"
    with pytest.raises(DeclarationError, match=right):
        async with headway.open_engine("memory:", billing, audit):
            pass
    with pytest.raises(DeclarationError, match=right):
        async with headway.open_workers("127.0.0.1:9", billing, audit):
            pass


async def nothing(rt: headway.Runtime, request: headway.Request) -> None:
    """Do nothing."""
