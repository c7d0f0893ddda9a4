"""What stands around the parts of an engine: nothing, or tracing if the program has set it up."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from headway.base import repr_text
from headway.controller import Definition
from headway.errors import InvalidArgument
from headway.rpc import Channel, Services, StreamDecoder
from headway.run import ChangeMapper
from headway.service import WatchDecoder
from headway.storage import Backend

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider


class Around:
    """What stands around the parts of an engine. Here nothing does: each method returns what it is given."""

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
        """Forget the commits of the store, because a store with another history was accepted."""

    def apart(self) -> AbstractContextManager[None]:
        """Return a block for work and tasks of the engine itself, which then inherit nothing of the caller's."""
        return nullcontext()


BARE = Around()


def tracing_by(given: TracerProvider | None) -> Around:
    """Return the tracing of an engine or a client, by the given provider or the one that the program has configured.

    Raises InvalidArgument if the argument is not a tracer provider.
    """
    provider: Any = _configured() if given is None else given
    if provider is None:
        return BARE
    if not callable(getattr(provider, "get_tracer", None)):
        raise InvalidArgument(
            f"tracing must be a TracerProvider of OpenTelemetry, not {repr_text(provider)}: "
            "tracing=opentelemetry.sdk.trace.TracerProvider()"
        )
    from headway.tracing import Traced

    return Traced(provider)


def _configured() -> Any:
    """Return the program's tracer provider, or None if it has set none.

    A program that has not imported OpenTelemetry has set none, so it is not imported here either.
    """
    otel = sys.modules.get("opentelemetry.trace")
    if otel is None:
        return None
    provider = otel.get_tracer_provider()
    return None if isinstance(provider, otel.ProxyTracerProvider | otel.NoOpTracerProvider) else provider
