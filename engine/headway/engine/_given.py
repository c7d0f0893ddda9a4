"""The keyword arguments of `open_engine`, `open_workers`, `open_cache` and `connect`."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, TypedDict

from headway.engine._extension import Extension
from headway.engine._options import Network, Timing
from headway.events import Report
from headway.journal import JournalOptions
from headway.rpc import Token

if TYPE_CHECKING:
    from ssl import SSLContext

    from opentelemetry.trace import TracerProvider


class ProcessOptions(TypedDict, total=False):
    """The options that `open_engine` and `open_workers` have in common. `open_engine` describes them."""

    report: Report | None
    timing: Timing | None
    process: str | None
    journal: str | PathLike[str] | JournalOptions | None
    tracing: TracerProvider | None
    gc_freeze: bool
    extensions: Sequence[Extension]


class EngineOptions(ProcessOptions, total=False):
    """The options of `open_engine`."""

    network: Network | None


class ConnectionOptions(TypedDict, total=False):
    """The options of connections to engines. `connect` describes them."""

    tls: SSLContext | None
    server_name: str | None
    token: Token
    insecure: bool
    timeout: float


class WorkerOptions(ProcessOptions, ConnectionOptions, total=False):
    """The options of `open_workers`."""
