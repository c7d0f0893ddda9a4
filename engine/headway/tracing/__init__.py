"""Spans of OpenTelemetry: from a write to the reconciles that it causes, and to their writes.

Headway continues traces and begins none: what no sampled span has caused makes no span. Nothing in this package runs
unless a program has set up tracing. `_tracing.py` lists the spans. The other modules stand around a channel, a store,
a server, a mapping and a reconciler, and each makes the spans that belong there. The extra `headway[otel]` brings the
package opentelemetry-api.
"""

from headway.tracing._channel import TracedChannel as TracedChannel
from headway.tracing._mapper import TracedMapper as TracedMapper
from headway.tracing._reconcile import traced_definition as traced_definition
from headway.tracing._server import traced_services as traced_services
from headway.tracing._store import traced_store as traced_store
from headway.tracing._tracing import Tracing as Tracing
from headway.tracing._tracing import apart as apart
