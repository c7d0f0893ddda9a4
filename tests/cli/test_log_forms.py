"""`headway serve --log`: the lines of a failing reconcile, for programs and for people."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import structlog

from headway import events
from headway.cli._log import announce, configure_log
from headway.observe import log_report
from headway.resource import ResourceId
from tests.cli import failing


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
