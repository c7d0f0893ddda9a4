"""A process of traced workers: `python -m tests.tracing.worker_program ENDPOINT`. It prints each ended span as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import trio
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

import headway
from headway import events
from tests.tracing.spans import told
from tests.tracing.staff import Staff


class Printed(SpanExporter):
    """An exporter that prints."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for each in spans:
            print(json.dumps(told(each)), flush=True)
        return SpanExportResult.SUCCESS


def say(event: object) -> None:
    """Print that the controller runs."""
    if isinstance(event, events.RunStarted):
        print("running", flush=True)


async def main(endpoint: str) -> None:
    """Run until the process is ended."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(Printed()))
    async with headway.open_workers(endpoint, Staff().app, process="web-1", report=say, tracing=provider):
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
