"""Spans of OpenTelemetry: from a write to the reconciles that it causes, and to their writes.

Headway continues traces and begins none: what no sampled span has caused makes no span. Nothing in this package runs
unless a program has set up tracing. `_tracing.py` lists the spans, and `_engine.py` what stands around a channel, a
store, a server, a mapping and a reconciler. The extra `headway[otel]` brings the package opentelemetry-api.
"""

from headway.tracing._engine import Traced as Traced
