"""The end of an engine is bounded, or the tasks that it waits for are reported (C10)."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import headway
from headway import field
from headway.base import say
from headway.engine._shutdown import culprits
from headway.errors import DeclarationError
from headway.events import ShutdownBlocked

PROGRAM = """
    import io, re, sys, trio, headway, headway.events
    from headway import field

    @headway.message
    class Thing:
        name: str = field(1)

    app = headway.App("stubborn")
    THING = app.type("test", "v1", "Thing", Thing)
    began = trio.Event()

    async def busy():
        while True:
            pass

    async def shielding():
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

    async def swallowing():
        while True:
            try:
                await trio.sleep(1)
            except BaseException:
                pass

    async def without_the_lock():
        # Takes longer than the world will last, and no other thread runs meanwhile.
        re.match(r"(a*)*b", "a" * 60)

    @app.controller(manages=THING)
    async def things(rt, request):
        began.set()
        try:
            await trio.sleep_forever()
        finally:
            await {refusal}()

    async def main():
        timing = headway.Timing(shutdown_bound=0.3, hard_exit=0.6)
        async with headway.open_engine("memory:", app, timing=timing) as engine:
            await engine.client.apply(THING.new("one", Thing()))
            await began.wait()
        print("ended by itself")

    trio.run(main)
"""


DEAF = """
def deaf(event):
    if isinstance(event, headway.events.ShutdownBlocked):
        raise ValueError(event)
"""


def _end_of(refusal: str, *changes: tuple[str, str]) -> subprocess.CompletedProcess[str]:
    program = textwrap.dedent(PROGRAM)
    for old, new in (("{refusal}", refusal), *changes):
        assert old in program
        program = program.replace(old, new)
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize(
    "refusal", ["busy", *[pytest.param(each, marks=pytest.mark.wide) for each in ("shielding", "swallowing")]]
)
def test_c10_hard_exit_ends_a_process_whose_reconcile_does_not_end(refusal: str) -> None:
    """The exit status is 70, and the worker and its position are reported."""
    ended = _end_of(refusal)
    assert ended.returncode == 70, ended.stderr
    assert "ended by itself" not in ended.stdout
    assert "worker 0 of stubborn/things has not ended within 0.6 s of the start of the shutdown" in ended.stderr
    assert f"in {refusal}" in ended.stderr
    # The log has this event before that, at the bound.
    assert "ShutdownBlocked" in ended.stdout


@pytest.mark.wide
@pytest.mark.parametrize("stderr", ["None", "io.StringIO()"])
def test_c10_hard_exit_does_not_depend_on_reports(stderr: str) -> None:
    """A report that raises and a standard error that is not a file do not prevent the exit."""
    ended = _end_of(
        "busy",
        ('open_engine("memory:", app,', 'open_engine("memory:", app, report=deaf,'),
        ("async def main", f"{DEAF}\nsys.stderr = {stderr}\n\nasync def main"),
    )
    assert ended.returncode == 70, ended.stderr
    assert "worker 0 of stubborn/things has not ended within 0.6 s of the start of the shutdown" in ended.stderr


def test_c10_hard_exit_ends_a_process_in_which_no_thread_can_run() -> None:
    """faulthandler shows a reconcile that holds the interpreter lock."""
    ended = _end_of("without_the_lock")
    assert ended.returncode == 1, ended.stderr
    assert "in without_the_lock" in ended.stderr


@headway.message
class Thing:
    """A resource without relevant content."""

    name: str = field(1)


class Stubborn:
    """An app whose reconcile shields itself until the test releases it."""

    def __init__(self) -> None:
        self.app = headway.App("stubborn")
        self.thing = self.app.type("test", "v1", "Thing", Thing)
        self.began = trio.Event()
        self.released = trio.Event()
        self.reports: list[ShutdownBlocked] = []

        @self.app.controller(manages=self.thing)
        async def things(_: headway.Runtime, __: headway.Request) -> None:
            self.began.set()
            with trio.CancelScope(shield=True):
                await self.released.wait()

    def report_to(self, token: trio.lowlevel.TrioToken) -> headway.events.Report:
        def report(event: object) -> None:
            if isinstance(event, ShutdownBlocked):
                self.reports.append(event)
                if len(self.reports) == 2:
                    token.run_sync_soon(self.released.set)

        return report


async def test_c10_without_hard_exit_the_task_is_reported_repeatedly() -> None:
    """The block waits for the task, and reports it once each bound."""
    stubborn = Stubborn()
    report = stubborn.report_to(trio.lowlevel.current_trio_token())
    with trio.fail_after(20):
        async with headway.open_engine(
            "memory:", stubborn.app, report=report, timing=headway.Timing(shutdown_bound=0.05)
        ) as engine:
            await engine.client.apply(stubborn.thing.new("one", Thing()))
            await stubborn.began.wait()
    first, second = stubborn.reports[:2]
    assert first.task == second.task == "worker 0 of stubborn/things"
    assert "in things\n" in first.stack
    assert "released.wait()" in first.stack
    assert (first.seconds, second.seconds) == (0.05, 0.1)


async def test_c10_tasks_of_inner_nurseries_are_reported() -> None:
    """If no other task is left, the engine's own task is reported."""
    released = trio.Event()

    async def stubborn() -> None:
        with trio.CancelScope(shield=True):
            await released.wait()

    async with trio.open_nursery() as nursery:
        assert [name for name, _ in culprits(nursery, threading.get_ident())] == [trio.lowlevel.current_task().name]
        async with trio.open_nursery() as within:
            within.start_soon(stubborn, name="a handler")
            await wait_all_tasks_blocked()
            ((name, stack),) = culprits(nursery, threading.get_ident())
            assert name == "a handler"
            assert "released.wait()" in stack
            released.set()


async def test_c10_report_that_never_returns_does_not_delay_the_end() -> None:
    """The report may be waiting for the engine to end."""
    stubborn = Stubborn()
    token = trio.lowlevel.current_trio_token()
    ended, reported = threading.Event(), threading.Event()

    def report(event: object) -> None:
        if isinstance(event, ShutdownBlocked):
            token.run_sync_soon(stubborn.released.set)
            ended.wait(50)
            reported.set()

    with trio.fail_after(30):
        async with headway.open_engine(
            "memory:", stubborn.app, report=report, timing=headway.Timing(shutdown_bound=0.05)
        ) as engine:
            await engine.client.apply(stubborn.thing.new("one", Thing()))
            await stubborn.began.wait()
    assert not reported.is_set()
    ended.set()
    assert reported.wait(30)


async def test_c10_shutdown_is_watched_after_errors_and_deadlines() -> None:
    for ending in ("error", "deadline"):
        stubborn = Stubborn()
        report = stubborn.report_to(trio.lowlevel.current_trio_token())
        deadline = trio.CancelScope()
        with pytest.raises(KeyError) if ending == "error" else deadline:
            async with headway.open_engine(
                "memory:", stubborn.app, report=report, timing=headway.Timing(shutdown_bound=0.05)
            ) as engine:
                await engine.client.apply(stubborn.thing.new("one", Thing()))
                await stubborn.began.wait()
                if ending == "error":
                    raise KeyError("mine")
                deadline.deadline = trio.current_time()
                await trio.sleep_forever()
        # The second report releases the worker. On a busy machine a third may come before that is noticed.
        assert len(stubborn.reports) >= 2
        assert {each.task for each in stubborn.reports} == {"worker 0 of stubborn/things"}


async def test_end_in_time_reports_nothing_and_leaves_no_thread() -> None:
    stubborn = Stubborn()
    stubborn.released.set()
    reports: list[object] = []
    async with headway.open_engine(
        "memory:", stubborn.app, report=reports.append, timing=headway.Timing(shutdown_bound=5, hard_exit=20)
    ) as engine:
        await engine.client.apply(stubborn.thing.new("one", Thing()))
        await stubborn.began.wait()
    assert not [each for each in reports if isinstance(each, ShutdownBlocked)]
    assert "headway shutdown" not in {thread.name for thread in threading.enumerate()}


async def test_shutdown_goes_on_if_no_thread_can_watch_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As in a process that is short of memory, or has as many threads as it may have."""
    real, refused = threading.Thread.start, list[str]()

    def start(thread: threading.Thread) -> None:
        if thread.name == "headway shutdown":
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    async with headway.open_engine("memory:", headway.App("test"), timing=headway.Timing(hard_exit=60)) as engine:
        await engine.wait_idle()
    assert refused
    assert "nothing ends this process if its shutdown hangs: can't start new thread" in capfd.readouterr().err


async def test_hard_exit_works_without_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that ends in time ends without an error."""
    monkeypatch.setattr("sys.stderr", None)
    async with headway.open_engine("memory:", report=headway.events.ignore, timing=headway.Timing(hard_exit=20)):
        pass


@pytest.mark.parametrize("given", [0, -1, float("inf"), float("nan"), "10", True])
@pytest.mark.parametrize("name", ["shutdown_bound", "hard_exit"])
async def test_invalid_bound_is_refused(name: str, given: object) -> None:
    """The error names the option and its value."""
    with pytest.raises(DeclarationError, match=f"{name}=.* must be a number of seconds above 0"):
        async with headway.open_engine("memory:", timing=headway.Timing(**{name: given})):  # type: ignore[arg-type]  # that is the point
            pass


def test_long_stack_is_printed_to_its_last_line(capfd: pytest.CaptureFixture[str]) -> None:
    """The last line is the one that blocks."""
    say("x" * 10_000 + " the last line")
    assert capfd.readouterr().err == "x" * 10_000 + " the last line"
