"""The log: which events become lines, their levels, and their text."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
import structlog.testing
import trio
from trio.testing import MockClock
from typing_extensions import override

import headway
from headway import events
from headway.fights import Alternating
from headway.observe import log_report
from headway.reconcile import Reason
from headway.resource import ResourceId, TypeName
from headway.run import OwnWrite
from tests.helpers.pools import Pool

NAME = TypeName("staff", "v1", "Team")
ID = ResourceId(NAME, "core", "default", "default")
DONE = events.Reconciled("teams", ID, "done", 0.1, None, None, ())


class Traced(Reason):
    """A reason whose change is traced."""

    @property
    @override
    def trace_id(self) -> str:
        return "ab" * 16


class Lines:
    """A logger that records its calls."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, object]]] = []

    def __getattr__(self, level: str) -> Any:
        return lambda event, **fields: self.lines.append((level, event, fields))


def failed(error: Exception) -> events.Reconciled:
    reasons = (Reason("started"), Reason("changed", NAME, ID.key, 7))
    return events.Reconciled("teams", ID, "failed", 0.1, error, 0.005, reasons)


def test_failed_reconcile_logs_its_place_error_and_reasons() -> None:
    """The line has the program's source line, the class and text of the error, and the reasons in words."""
    lines = Lines()
    try:
        int("five")
    except ValueError as error:
        line = error.__traceback__.tb_lineno if error.__traceback__ else 0
        log_report(lines)(failed(error))

    [(level, event, fields)] = lines.lines
    assert (level, event) == ("warning", "ReconcileFailed")
    assert fields["error"] == "ValueError: invalid literal for int() with base 10: 'five'"
    assert fields["where"] == f"{__file__}:{line}"
    assert fields["reasons"] == "started, Team core changed at 7"
    assert fields["id"] == "Team core"


def _attempts(report: events.Report, *errors: tuple[int, str, float | None], id: ResourceId = ID) -> None:
    for attempt, text, retry in errors:
        report(events.Reconciled("teams", id, "failed", 0.1, ValueError(text), retry, (), attempt=attempt))


def test_quick_retries_with_the_same_error_are_one_line() -> None:
    """The line after them counts them. Another error, another key and a new first attempt have lines of their own."""
    lines = Lines()
    report = log_report(lines)
    backoff = [0.005 * 2**n for n in range(12)]
    _attempts(report, *((n + 1, "no desk", delay) for n, delay in enumerate(backoff)))
    _attempts(report, (1, "no desk", 0.005), id=ID._replace(name="edge"))
    _attempts(report, (13, "no chair", 0.0), (14, "no desk", 0.0), (15, "no desk", 0.0), (16, "no desk", None))
    _attempts(report, (1, "no desk", 0.005))
    assert [(fields["key"], fields["attempt"], fields.get("repeated")) for _, _, fields in lines.lines] == [
        ("default/default/core", 1, None),
        ("default/default/core", 10, 8),
        ("default/default/core", 11, None),
        ("default/default/core", 12, None),
        ("default/default/edge", 1, None),
        ("default/default/core", 13, None),
        ("default/default/core", 14, None),
        ("default/default/core", 16, 1),
        ("default/default/core", 1, None),
    ]


def test_same_error_at_another_place_has_a_line_of_its_own() -> None:
    """Two lines of a reconciler may raise the same KeyError."""
    lines = Lines()
    report = log_report(lines)
    places = ["{}['desk']", "\n{}['desk']", "\n{}['desk']"]
    for attempt, code in enumerate(places, 1):
        try:
            exec(compile(code, "/srv/teams.py", "exec"))  # errors at chosen lines
        except KeyError as error:
            report(events.Reconciled("teams", ID, "failed", 0.1, error, 0.1, (), attempt=attempt))
    assert [fields["where"] for _, _, fields in lines.lines] == ["/srv/teams.py:1", "/srv/teams.py:2"]


def test_error_that_keeps_repeating_is_logged_again_and_verbose_leaves_nothing_out() -> None:
    """A key may fail at once each time, because changes end its back-off."""
    lines, all_lines = Lines(), Lines()
    for report in (log_report(lines), log_report(all_lines, verbose=True)):
        _attempts(report, *((attempt, "no desk", 0.0) for attempt in range(1, 304)))
    assert [fields["attempt"] for _, _, fields in lines.lines] == [1, 102, 203]
    assert len(all_lines.lines) == 303


def test_failures_of_many_keys_have_one_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those left out are announced at once, and counted in the next line. Other warnings and controllers go on."""
    lines, now = Lines(), 0.0
    report = log_report(lines)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    error = ValueError("no desk")
    every = [ID._replace(name=f"team-{number}") for number in range(2_000)]
    for id in every:
        report(events.Reconciled("teams", id, "failed", 0.1, error, 60.0, (), attempt=1))
        report(events.ReconcileSlow("teams", id, 9.0))
    for name in ("ReconcileFailed", "ReconcileSlow"):
        told = [fields for _, event, fields in lines.lines if event == name]
        assert [fields["key"] for fields in told] == [f"default/default/team-{number}" for number in range(100)]
    announced = [fields for _, event, fields in lines.lines if event == "LinesLeftOut"]
    assert [fields.pop("of") for fields in announced] == ["ReconcileFailed", "ReconcileSlow"]
    assert announced == [{"controller": "teams", "most": 100, "seconds": 10.0}] * 2
    del lines.lines[:]
    report(events.Reconciled("others", ID, "failed", 0.1, error, 60.0, ()))
    report(events.StoreFailed("unusable", OSError("full")))
    now = 10.0
    for id in every[:2]:
        report(events.Reconciled("teams", id, "failed", 0.1, error, 60.0, (), attempt=2))
    assert [(event, fields.get("left_out")) for _, event, fields in lines.lines] == [
        ("ReconcileFailed", None),
        ("StoreFailed", None),
        ("ReconcileFailed", 1_900),
        ("ReconcileFailed", None),
    ]
    del lines.lines[:]
    verbose = log_report(lines, verbose=True)
    for id in every:
        verbose(events.Reconciled("teams", id, "failed", 0.1, error, 60.0, (), attempt=1))
    assert len(lines.lines) == 2_000


def test_place_of_an_error_is_never_in_a_library() -> None:
    """Neither Python's standard library nor Trio counts as the program."""
    lines = Lines()
    try:
        json.loads("five")
    except ValueError as error:
        line = error.__traceback__.tb_lineno if error.__traceback__ else 0
        log_report(lines)(failed(error))
    try:
        trio.run(trio.sleep, -1)
    except ValueError as error:
        other = error.__traceback__.tb_lineno if error.__traceback__ else 0
        log_report(lines)(failed(error))
    assert [fields["where"] for _, _, fields in lines.lines] == [f"{__file__}:{line}", f"{__file__}:{other}"]


RETRY, CHANGED = Reason("retry"), Reason("changed", NAME, ID.key, 7)


@pytest.mark.parametrize(
    ("reasons", "says"),
    [
        ((Reason("started"),), "started"),
        ((Reason("started"), RETRY), "started, retry"),
        ((Reason("started"), RETRY, CHANGED), "Team core changed at 7"),
        ((Reason("started"), RETRY, CHANGED, RETRY), "Team core changed at 7, retry"),
        ((Reason("started"), RETRY, Reason("source clock"), CHANGED), "source clock, Team core changed at 7"),
    ],
)
def test_failure_logs_the_reasons_of_its_own_attempt(reasons: tuple[Reason, ...], says: str) -> None:
    """Reasons of earlier attempts, which a later change has superseded, are absent."""
    lines = Lines()
    log_report(lines)(events.Reconciled("teams", ID, "failed", 0.1, FAILED, 0.005, reasons, 0.0, 5))
    [(_, _, fields)] = lines.lines
    assert fields["reasons"] == says
    assert fields["attempt"] == 5


def _outer(number: int) -> None:
    if number:
        _outer(number - 1)
    else:
        json.loads("five")


def _raised(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:  # noqa: BLE001  # whatever it is
        return error
    raise AssertionError("it raised nothing")


def test_failure_shows_the_frames_of_the_program_only() -> None:
    """Frames of Headway, Trio and the standard library are hidden unless `verbose` is set."""
    error = _raised(lambda: _outer(2))
    quiet, verbose = Lines(), Lines()
    log_report(quiet)(failed(error))
    log_report(verbose, verbose=True)(failed(error))
    stack, whole = str(quiet.lines[0][2]["stack"]), str(verbose.lines[0][2]["stack"])
    assert stack.count(f'File "{__file__}"') == 5
    assert 'json.loads("five")' in stack
    assert "decoder.py" not in stack
    assert stack.endswith("JSONDecodeError: Expecting value: line 1 column 1 (char 0)")
    assert "decoder.py" in whole


def test_frames_of_causes_and_grouped_errors_are_shown() -> None:
    """An operator looks for the origin of the error."""

    def chained() -> None:
        try:
            _outer(0)
        except ValueError as error:
            raise LookupError("no team") from error

    lines = Lines()
    log_report(lines)(failed(ExceptionGroup("tasks", [_raised(chained), _raised(lambda: _outer(1))])))
    stack = str(lines.lines[0][2]["stack"])
    assert stack.index("JSONDecodeError") < stack.index("-- and then:") < stack.index("LookupError: no team")
    assert stack.count("JSONDecodeError") == 2


def test_deep_recursion_shows_its_first_and_last_frames() -> None:
    """One line must not fill a log."""
    lines = Lines()
    log_report(lines)(failed(_raised(lambda: _outer(800))))
    stack = str(lines.lines[0][2]["stack"])
    assert "frames more" in stack
    assert len(stack.splitlines()) < 80
    assert 'json.loads("five")' in stack


def test_errors_of_several_tasks_are_one_line() -> None:
    """Nested groups are flattened. Equal errors appear once, with their number, and each has its source line."""
    lines = Lines()
    errors: list[LookupError] = []
    for text in ("a", "b", "a"):
        try:
            raise LookupError(text)
        except LookupError as error:
            errors.append(error)
    group = ExceptionGroup("tasks", [ExceptionGroup("inner", errors[:2]), errors[2]])
    log_report(lines)(events.RunEnded("teams", group, 1.0))
    [(_, _, fields)] = lines.lines
    assert fields["error"] == "3 errors: LookupError: a (2 times); LookupError: b"
    lines_of = [error.__traceback__.tb_lineno for error in errors if error.__traceback__]
    assert fields["where"] == ", ".join(f"{__file__}:{line}" for line in lines_of)


def test_error_without_text_is_logged_as_its_class() -> None:
    lines = Lines()
    log_report(lines)(failed(trio.TooSlowError()))
    assert lines.lines[0][2]["error"] == "TooSlowError"


FAILED = LookupError("odd")
WRITE = OwnWrite(NAME, ID.key, 7, "written", ID.key)


def test_key_that_triggers_itself_is_logged_with_its_writes() -> None:
    lines = Lines()
    log_report(lines)(events.SelfTriggered("teams", ID, (WRITE,), 11, 0.1))
    assert [fields["writes"] for _, _, fields in lines.lines] == ["Team core written at 7"]


FIELDS = (Alternating("size", "1", "2"), Alternating("note", "'a'", "'b'"))
FIGHT = events.ControllersFight("teams", ID, ID, "controller staff/rooms", 7, FIELDS, 13, 0.1)


def test_fight_is_logged_with_the_other_writer_and_the_fields() -> None:
    lines = Lines()
    log_report(lines)(FIGHT)
    ((_, _, fields),) = lines.lines
    assert (fields["by"], fields["resource"]) == ("controller staff/rooms", "Team core")
    assert fields["fields"] == "size is 1 and 2, note is 'a' and 'b'"


def test_key_that_is_only_requeued_at_once_is_logged_with_what_to_do() -> None:
    lines = Lines()
    log_report(lines)(events.SelfTriggered("teams", ID, (), 1_000, 0.0))
    assert ["requeue_after(seconds)" in str(fields["writes"]) for _, _, fields in lines.lines] == [True]


def test_success_is_logged_only_when_verbose() -> None:
    """Without ``verbose`` a successful reconcile makes no line; with it, one at debug."""
    quiet, verbose = Lines(), Lines()
    log_report(quiet)(DONE)
    log_report(verbose, verbose=True)(DONE)

    assert quiet.lines == []
    assert [(level, event) for level, event, _ in verbose.lines] == [("debug", "Reconciled")]


@pytest.mark.parametrize(
    "event",
    [
        events.CallbackFailed("teams", "on_stop", FAILED),
        events.DaemonEnded("teams", ID, FAILED, 0.5),
        events.SelfTriggered("teams", ID, (WRITE,), 11, 0.1),
        FIGHT,
        events.SourceFailed("teams", "from_channel", "an event", FAILED),
        events.MappingFailed("teams", "owner", NAME, ID.key, ValueError("no"), 0.005),
        events.RunEnded("teams", ValueError("no"), 0.5),
        events.WriteUnknown("teams", None),
        events.DeletionsUnknown("teams", NAME, 7, "history is gone"),
    ],
)
def test_events_for_an_operator_are_warnings(event: object) -> None:
    """They have the controller's name, and do not depend on ``verbose``."""
    lines = Lines()
    log_report(lines)(event)

    [(level, name, fields)] = lines.lines
    logged_as = "DaemonFailed" if isinstance(event, events.DaemonEnded) else type(event).__name__
    assert (level, name, fields["controller"]) == ("warning", logged_as, "teams")


async def test_engine_without_a_report_logs_to_structlog(autojump_clock: MockClock) -> None:
    """Failures are warnings of structlog's default logger."""
    app = headway.App("pools")
    pool = app.type("pools", "v1", "Pool", Pool)

    @app.controller(manages=pool)
    async def look(_: headway.Runtime, request: headway.Request) -> None:
        raise headway.PermanentFailure(f"no {request.id.name}")

    with structlog.testing.capture_logs() as lines:
        async with headway.open_engine("memory:", app) as engine:
            await engine.client.write(pool.new("a"))
            await engine.wait_idle()

    assert [(line["event"], line["log_level"], line["error"]) for line in lines] == [
        ("ReconcileFailed", "warning", "PermanentFailure: no a")
    ]


@pytest.mark.parametrize("verbose", [False, True])
def test_error_text_is_bounded_and_cannot_forge_a_line(verbose: bool) -> None:
    """The text is data of another program or of an unauthenticated peer."""
    lines = Lines()
    forged = "one\n2026-01-01 [warning] forged\x1b[31m"

    def chained() -> None:
        try:
            raise ValueError(forged)
        except ValueError as error:
            other = KeyError("x" * 100_000)
            other.add_note(forged)
            raise other from error

    log_report(lines, verbose=verbose)(failed(ExceptionGroup(forged, [_raised(chained), _raised(chained)])))
    [(_, _, fields)] = lines.lines
    stack = str(fields["stack"])
    assert "\x1b" not in stack
    assert not any(line.startswith("2026") for line in stack.splitlines())
    assert len(stack) < 20_000
    assert len(str(fields["error"])) < 2_100
    assert "(98,00" in str(fields["error"])
    assert "(98,0" in stack


@pytest.mark.parametrize("verbose", [False, True])
def test_large_error_group_is_bounded_in_the_log(verbose: bool) -> None:
    lines = Lines()
    group = ExceptionGroup("many", [_raised(lambda: _outer(0)) for _ in range(1000)])
    many = ExceptionGroup("all", [group, *(LookupError(str(number)) for number in range(1000))])
    log_report(lines, verbose=verbose)(failed(many))
    [(_, _, fields)] = lines.lines
    assert "more)" in str(fields["error"])
    assert len(str(fields)) < 50_000


@pytest.mark.parametrize(
    "event",
    [
        events.ReconcileSlow("teams", ID, 31.0, 3, "ab" * 16),
        events.SelfTriggered("teams", ID, (WRITE,), 11, 0.1, 3, "ab" * 16),
        events.LoopBlocked("worker 0", "teams", ID.key, "", 1.5, 0, 3, "ab" * 16),
        events.Reconciled(
            "teams",
            ID,
            "failed",
            0.1,
            FAILED,
            0.005,
            (Traced(*CHANGED),),
            0.0,
            3,
        ),
    ],
)
def test_line_about_a_reconcile_has_its_controller_key_attempt_and_trace(event: object) -> None:
    lines = Lines()
    log_report(lines)(event)
    [(_, _, fields)] = lines.lines
    found = {name: fields[name] for name in ("controller", "key", "attempt", "trace_id")}
    assert found == {"controller": "teams", "key": "default/default/core", "attempt": 3, "trace_id": "ab" * 16}


async def test_logger_of_a_reconcile_is_bound_to_its_key_and_attempt(autojump_clock: MockClock) -> None:
    """Outside of a reconcile it is bound to the controller alone."""
    app = headway.App("pools")
    pool = app.type("pools", "v1", "Pool", Pool)

    async def initialise(rt: headway.Runtime) -> None:
        rt.log.info("starting")

    @app.controller(manages=pool, initialiser=initialise)
    async def look(rt: headway.Runtime, request: headway.Request) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(later, rt)
        if request.attempt == 1:
            raise LookupError("not yet")

    async def later(rt: headway.Runtime) -> None:
        rt.log.warning("looking", depth=2)

    with structlog.testing.capture_logs() as lines:
        async with headway.open_engine("memory:", app, report=events.ignore) as engine:
            await engine.client.write(pool.new("a"))
            await engine.wait_idle()

    where = {"controller": "pools/look", "key": "default/default/a"}
    about = where | {"event": "looking", "log_level": "warning", "depth": 2}
    assert lines == [
        {"controller": "pools/look", "event": "starting", "log_level": "info"},
        about | {"attempt": 1},
        about | {"attempt": 2},
    ]
