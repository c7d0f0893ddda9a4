"""Tracing that fails, which must change nothing for what is traced."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

import headway
from headway import events
from tests.tracing.spans import Spans
from tests.tracing.staff import Account, Staff, Team

PARENT = NonRecordingSpan(SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)))


class FailsAtStart(SpanProcessor):
    def on_start(self, *_: object, **__: object) -> None:
        raise LookupError("no room for a span")


class FailsAtEnd(SpanProcessor):
    def on_end(self, *_: object) -> None:
        raise LookupError("no room for a span")


class FailsToDecide(Sampler):
    def should_sample(self, *_: Any, **__: Any) -> Any:
        raise LookupError("no room for a span")

    def get_description(self) -> str:
        return "fails"


@pytest.mark.parametrize("fails", [FailsAtStart, FailsAtEnd, FailsToDecide])
async def test_writes_and_reconciles_go_on_without_spans(
    fails: type[SpanProcessor | Sampler], capfd: pytest.CaptureFixture[str]
) -> None:
    """The changes are mapped, and the failure is told once."""
    failing, staff = fails(), Staff()
    spans = Spans(failing if isinstance(failing, Sampler) else None)
    if isinstance(failing, SpanProcessor):
        spans.provider.add_span_processor(failing)
    async with headway.open_engine("memory:", staff.app, report=events.ignore, tracing=spans.provider) as engine:
        await engine.wait_idle()
        with use_span(PARENT):
            written = await engine.client.write(staff.team.new("core", Team(size=1)))
        assert written.version == (await engine.client.read(staff.team, "core")).version
        await engine.wait_idle()
        assert (await engine.client.read(staff.account, "core")).data == Account(size=1)
    said = capfd.readouterr().err
    assert said.count("headway: the program's tracing has failed") == said.count("LookupError: no room for a span") == 1
