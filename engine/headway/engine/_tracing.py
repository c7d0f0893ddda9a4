"""The places of an engine where tracing stands, if the program has set it up. Without it, nothing stands there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headway.base import repr_text
from headway.controller import Definition
from headway.errors import InvalidArgument
from headway.rpc import Channel, Services, StreamDecoder
from headway.run import ChangeMapper
from headway.service import WatchDecoder
from headway.storage import Backend

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from headway.tracing import Tracing


class Untraced:
    """An engine without tracing: each method returns what it is given."""

    def store(self, backend: Backend) -> Backend:
        """Return the store that the services commit to."""
        return backend

    def channel(self, channel: Channel, *, remote: bool = False, asks: bool = False) -> Channel:  # noqa: ARG002  # see below
        """Return the channel of a client or of controllers. See `TracedChannel` for the arguments."""
        return channel

    def services(self, services: Services) -> Services:
        """Return the services for clients on the network."""
        return services

    def definition(self, definition: Definition) -> Definition:
        """Return the controller as it runs."""
        return definition

    @property
    def new_mapper(self) -> Callable[..., ChangeMapper]:
        """Creates what maps the changes of a run."""
        return ChangeMapper

    @property
    def decoder(self) -> Callable[[], StreamDecoder]:
        """Creates the decoder of a watch."""
        return WatchDecoder

    def forget(self) -> None:
        """Forget the traces of the store's commits, because a store with another history was accepted."""

    def apart(self) -> AbstractContextManager[None]:
        """Return a block for starting long-lived tasks, which then don't inherit the caller's span."""
        return nullcontext()


UNTRACED = Untraced()


class Traced(Untraced):
    """An engine with tracing. `headway.tracing` has what stands in each place."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    @override
    def store(self, backend: Backend) -> Backend:
        from headway.tracing import traced_store

        return traced_store(backend, self._tracing)

    @override
    def channel(self, channel: Channel, *, remote: bool = False, asks: bool = False) -> Channel:
        from headway.tracing import TracedChannel

        return TracedChannel(channel, self._tracing.tracer, remote=remote, asks=asks)

    @override
    def services(self, services: Services) -> Services:
        from headway.tracing import traced_services

        return traced_services(services, self._tracing)

    @override
    def definition(self, definition: Definition) -> Definition:
        from headway.tracing import traced_definition

        return traced_definition(definition, self._tracing.tracer)

    @property
    @override
    def new_mapper(self) -> Callable[..., ChangeMapper]:
        from headway.tracing import TracedMapper

        return partial(TracedMapper, self._tracing)

    @property
    @override
    def decoder(self) -> Callable[[], StreamDecoder]:
        from headway.service import TracedWatchDecoder

        return lambda: TracedWatchDecoder(self._tracing.traces)

    @override
    def forget(self) -> None:
        self._tracing.traces.clear()

    @override
    def apart(self) -> AbstractContextManager[None]:
        from headway.tracing import apart

        return apart()


def tracing_by(given: TracerProvider | None) -> Untraced:
    """Return the tracing of an engine or a client, by the given provider or the one that the program has configured.

    Raises InvalidArgument if the argument is not a tracer provider.
    """
    provider: Any = _configured() if given is None else given
    if provider is None:
        return UNTRACED
    if not callable(getattr(provider, "get_tracer", None)):
        raise InvalidArgument(
            f"tracing must be a TracerProvider of OpenTelemetry, not {repr_text(provider)}: "
            "tracing=opentelemetry.sdk.trace.TracerProvider()"
        )
    from headway.tracing import Tracing

    return Traced(Tracing(provider))


def _configured() -> Any:
    """Return the program's tracer provider, or None if it has set none.

    A program that has not imported OpenTelemetry has set none, so it is not imported here either.
    """
    otel = sys.modules.get("opentelemetry.trace")
    if otel is None:
        return None
    provider = otel.get_tracer_provider()
    return None if isinstance(provider, otel.ProxyTracerProvider | otel.NoOpTracerProvider) else provider
