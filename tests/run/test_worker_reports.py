"""The events that a worker reports: all of them, unless the report accepts failures alone."""

from __future__ import annotations

import pytest

import headway
from headway import field
from headway.events import Reconciled


@headway.message
class Note:
    """A payload."""

    text: str = field(1)


class Heard(list[object]):
    """A report that records its events."""

    def __init__(self, *, failures_only: bool) -> None:
        super().__init__()
        self.failures_only = failures_only

    def __call__(self, event: object) -> None:
        self.append(event)


@pytest.mark.parametrize(("failures_only", "expected"), [(False, ["failed", "done"]), (True, ["failed"])])
async def test_a_report_of_failures_only_gets_no_successes(failures_only: bool, expected: list[str]) -> None:
    """A failed reconcile is always reported. A success is reported only to a report that accepts successes."""
    app = headway.App("reports")
    type = app.type("reports", "v1", "Note", Note)

    @app.controller(manages=type)
    async def notes(rt: headway.Runtime, request: headway.Request) -> None:
        assert rt.controller == "notes"
        if request.attempt == 1:
            raise ValueError(request.id.name)

    heard = Heard(failures_only=failures_only)
    async with headway.open_engine("memory:", app, report=heard) as engine:
        await engine.client.write(type.new("one"))
        await engine.wait_idle()
    reported = [event for event in heard if isinstance(event, Reconciled)]
    assert [event.outcome for event in reported] == expected
    assert [event.attempt for event in reported] == [1, 2][: len(expected)]
