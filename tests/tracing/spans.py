"""Spans as the SDK exports them to memory, and their relations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Sampler
from opentelemetry.trace import Span

CHAIN = ["write", "commit", "deliver", "map", "wait", "reconcile"]
"""The spans of Headway from a write to its reconcile, each the parent of the next."""

_PREFIX = "headway."
# The wall clock is read as a float, whose steps are a quarter of a microsecond. The SDK reads nanoseconds.
_STEP = 1_000


class Told(NamedTuple):
    """An ended span. Ids are numbers; ``parent`` is 0 for the first span of a trace."""

    name: str
    trace: int
    id: int
    parent: int
    start: int
    end: int
    attributes: Mapping[str, Any]
    links: tuple[tuple[int, int], ...] = ()
    status: str = "UNSET"
    description: str = ""
    exceptions: tuple[str, ...] = ()
    state: str = ""
    stacks: tuple[str, ...] = ()


def told(span: ReadableSpan) -> Told:
    """Return what a span says, its name and attributes without the prefix."""
    context, parent = span.context, span.parent
    assert context is not None
    attributes = {name.removeprefix(_PREFIX): value for name, value in (span.attributes or {}).items()}
    links = tuple((each.context.trace_id, each.context.span_id) for each in span.links)
    raised = tuple(str((each.attributes or {}).get("exception.message")) for each in span.events)
    return Told(
        span.name.removeprefix(_PREFIX),
        context.trace_id,
        context.span_id,
        0 if parent is None else parent.span_id,
        span.start_time or 0,
        span.end_time or 0,
        attributes,
        links,
        span.status.status_code.name,
        span.status.description or "",
        raised,
        context.trace_state.to_header(),
        tuple(str((each.attributes or {}).get("exception.stacktrace")) for each in span.events),
    )


class Spans:
    """A tracer provider that exports to memory, and what it has exported."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @contextmanager
    def root(self) -> Iterator[Span]:
        """Begin a trace, as a program does."""
        with self.provider.get_tracer("program").start_as_current_span("request") as span:
            yield span

    def all(self) -> list[Told]:
        """Return the ended spans of Headway."""
        return [told(each) for each in self._exporter.get_finished_spans() if each.name.startswith(_PREFIX)]

    def named(self, name: str, **attributes: object) -> list[Told]:
        """Return the ended spans of a kind with these attributes, the first to begin first."""
        return named(self.all(), name, **attributes)


def unsampled() -> Spans:
    """Return spans of a provider that samples none of the traces that begin here."""
    return Spans(ALWAYS_OFF)


def named(spans: Iterable[Told], name: str, **attributes: object) -> list[Told]:
    """Return the spans of a kind with these attributes, the first to begin first."""
    found = [each for each in spans if each.name == name and attributes.items() <= each.attributes.items()]
    return sorted(found, key=lambda each: each.start)


def chain(span: Told, spans: Iterable[Told]) -> list[str]:
    """Return the names of a span's ancestors of Headway and of itself, the outermost first."""
    by_id = {each.id: each for each in spans}
    names = [span.name]
    while (above := by_id.get(span.parent)) is not None:
        span = above
        names.insert(0, span.name)
    return names


def check_times(spans: Iterable[Told]) -> None:
    """Assert that no span ends before it begins, or begins before its parent."""
    began = {each.id: each.start for each in spans}
    for each in spans:
        assert each.start <= each.end + _STEP, each
        assert began.get(each.parent, 0) <= each.start + _STEP, each
