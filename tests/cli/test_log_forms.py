"""`headway serve --log`: the lines of a failing reconcile, for programs and for people."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest
import structlog
import trio

import headway
from headway import events
from headway.cli._log import announce, configure_log
from headway.observe import log_report
from headway.resource import ResourceId
from tests.cli import failing
from tests.cli.conftest import Started

SECONDS = 40
SERVE = ("serve", "tests.cli.failing:app", "--listen", "127.0.0.1:0")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Restore the configuration of structlog, which is the process's."""
    yield
    structlog.reset_defaults()


def test_json_lines_are_objects_with_the_fields_of_the_event(capsys: pytest.CaptureFixture[str]) -> None:
    configure_log("json")
    announce("json", "listening on 127.0.0.1:7070")
    id = ResourceId(failing.THING.name, "one", "default", "default")
    log_report()(events.Reconciled("things", id, "failed", 0.1, LookupError("line 1\nline 2"), 0.5, (), 0.0, 2))
    announced, failed = map(json.loads, capsys.readouterr().out.splitlines())
    assert (announced["event"], announced["level"]) == ("listening on 127.0.0.1:7070", "info")
    assert (failed["event"], failed["level"]) == ("ReconcileFailed", "warning")
    assert (failed["controller"], failed["key"], failed["attempt"]) == ("things", "default/default/one", 2)
    assert failed["timestamp"].endswith("Z")


def test_pretty_lines_are_text_and_announcements_stand_alone(capsys: pytest.CaptureFixture[str]) -> None:
    configure_log("pretty")
    announce("pretty", "listening on 127.0.0.1:7070")
    log_report()(events.WriteUnknown("things", None))
    announced, line = capsys.readouterr().out.splitlines()
    assert announced == "listening on 127.0.0.1:7070"
    assert "WriteUnknown" in line
    assert "controller=things" in line
    assert "\x1b[" not in line


async def _write(where: str) -> None:
    with trio.fail_after(SECONDS):
        async with headway.connect(where, failing.app) as client:
            await client.write(failing.THING.new("one"))


@pytest.mark.wide
def test_json_log_has_one_object_a_line_with_the_key_and_the_attempt(start: Started) -> None:
    """The announcement of the address is a line of the log as well. Nothing else is on standard output."""
    process = start(*SERVE, "--log", "json")
    assert process.stdout is not None
    announced = json.loads(process.stdout.readline())
    assert announced["level"] == "info"
    assert announced["event"].startswith("listening on ")
    trio.run(_write, announced["event"].removeprefix("listening on "))
    failed = [json.loads(process.stdout.readline()) for _ in range(2)]
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    assert [each["event"] for each in failed] == ["ReconcileFailed"] * 2
    assert [(each["controller"], each["key"]) for each in failed] == [("fail/things", "default/default/one")] * 2
    # A repeated error is logged after more and more attempts.
    assert [each["attempt"] for each in failed] == [1, 10]
    assert failed[0]["error"] == "LookupError: nothing is found here"
    assert failed[0]["timestamp"].endswith("Z")
    assert all(isinstance(json.loads(line), dict) for line in rest.splitlines())


@pytest.mark.wide
def test_pretty_log_is_text_without_colors_in_a_pipe(start: Started) -> None:
    process = start(*SERVE, "--log", "pretty")
    assert process.stdout is not None
    announced = process.stdout.readline()
    trio.run(_write, announced.removeprefix("listening on ").strip())
    line = process.stdout.readline()
    assert "ReconcileFailed" in line
    assert "key=default/default/one" in line
    assert "\x1b[" not in line
