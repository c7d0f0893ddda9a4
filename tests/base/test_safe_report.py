"""A report that fails affects nothing but its own events."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TextIO

import pytest
import structlog
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.base import safe_report
from headway.observe import log_report, reports
from tests.helpers.resources import Account
from tests.helpers.staff import Staff

FAILURES = [OSError(28, "No space left on device"), BrokenPipeError(), SystemExit(1), GeneratorExit(), KeyError("x")]


class Broken:
    """A report that always raises.

    Attributes:
        called: the number of calls.
    """

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.called = 0

    def __call__(self, _: object) -> None:
        self.called += 1
        raise self.error


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
async def test_failing_report_does_not_affect_the_engine(
    error: BaseException,
    failed_reports: list[BaseException],
    autojump_clock: MockClock,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """No run or engine ends, and failed reconciles are retried. Standard error gets the failure once."""
    staff, report, attempts = Staff(), Broken(error), list[int]()
    by_name = headway.indexes.by(staff.account, "name", lambda _: 1 // 0)

    @staff.app.controller(
        manages=staff.team, watches=[headway.watch(staff.account, headway.mappers.owner())], indexes=[by_name]
    )
    async def teams(_: headway.Runtime, request: headway.Request) -> None:
        attempts.append(request.attempt)
        if request.attempt < 4:
            raise LookupError("not yet")

    async with headway.open_engine("memory:", staff.app, report=report) as engine:
        await engine.client.write(staff.team.new("core"))
        await engine.client.write(staff.account.new("ada", Account()))
        await engine.wait_idle()
        assert engine.controllers["teams"].status().restarts == 0
    assert attempts == [1, 2, 3, 4]
    assert report.called > 4
    assert failed_reports == [error]
    failed_reports.clear()
    output = capfd.readouterr().err
    assert output.count("Broken failed to report an event") == 1
    assert type(error).__name__ in output


@pytest.fixture
def full_disk() -> Iterator[TextIO]:
    # Its buffer cannot be written when it is closed, either.
    with contextlib.suppress(OSError), open("/dev/full", "w") as full:
        yield full


async def test_unwritable_log_does_not_affect_the_engine(
    full_disk: TextIO, failed_reports: list[BaseException], autojump_clock: MockClock
) -> None:
    """The log cannot be written if the disk of standard output is full."""
    staff, attempts = Staff(), list[int]()

    @staff.app.controller(manages=staff.team)
    async def teams(_: headway.Runtime, request: headway.Request) -> None:
        attempts.append(request.attempt)
        if request.attempt < 3:
            raise LookupError("not yet")

    log = structlog.wrap_logger(structlog.PrintLogger(full_disk))
    async with headway.open_engine("memory:", staff.app, report=log_report(log)) as engine:
        await engine.client.write(staff.team.new("core"))
        await engine.wait_idle()
    failures = [type(error) for error in failed_reports]
    failed_reports.clear()
    assert attempts == [1, 2, 3]
    assert failures == [OSError]


async def test_failing_report_does_not_affect_a_lease(
    failed_reports: list[BaseException], autojump_clock: MockClock
) -> None:
    """The report fails while the lease is awaited, acquired and released."""
    async with headway.open_engine("memory:", headway.App("staff")) as engine:
        held = headway.hold_lease(engine.client.leases, "staff/x", holder="a", report=Broken(KeyError("x")))
        async with held as lease:
            assert lease.held
    assert len(failed_reports) == 1
    failed_reports.clear()


def test_failing_report_does_not_affect_other_reports(failed_reports: list[BaseException]) -> None:
    """A full disk under the log must not stop the metrics."""
    events: list[object] = []
    both = reports(Broken(OSError("full")), events.append)
    both("one")
    both("two")
    assert events == ["one", "two"]
    failed_reports.clear()


def test_keyboard_interrupt_is_propagated() -> None:
    """Python raises it in whatever code is running."""
    with pytest.raises(KeyboardInterrupt):
        safe_report(Broken(KeyboardInterrupt()))("event")


def test_cancelled_from_a_report_is_a_failure_of_the_report(failed_reports: list[BaseException]) -> None:
    """A report waits for nothing, so Trio cannot have canceled it."""
    cancelled = trio.run(_cancelled)
    safe_report(Broken(cancelled))("event")
    assert failed_reports == [cancelled]
    failed_reports.clear()


async def _cancelled() -> trio.Cancelled:
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            kept = error
    return kept


@pytest.mark.parametrize("verbose", [False, True])
def test_safe_report_of_failures_only_receives_no_successes(verbose: bool) -> None:
    """An event for each successful reconcile would be wasted."""
    assert events.receives_successes(safe_report(log_report(verbose=verbose))) is verbose
    assert events.receives_successes(safe_report(functools.partial(print, end=""))) is True
    assert safe_report(events.ignore) is events.ignore
