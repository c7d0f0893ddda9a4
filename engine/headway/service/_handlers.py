"""The table of a service's handlers by path, and the context of the verbs of a resource service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from grpclib.const import Cardinality, Handler

from headway.resource import pb
from headway.rpc import ANSWER
from headway.service._access import AccessChecks
from headway.service._versions import Versions
from headway.storage import Backend

Method = tuple[Callable[[Any], Awaitable[Any]], type[Any], type[Any]]
"""A function that serves a method, and the types of its request and its response."""


class Context(NamedTuple):
    """The context of the verbs of one resource service.

    Attributes:
        access: the types, and the checks of the caller's rights.
        versions: converts between versions of a kind.
        recreates: a Write that names the uid of a deleted incarnation creates a new one, as in Consul.
        as_listed: returns the form of a stored resource that lists send; None sends resources as stored.
    """

    backend: Backend
    access: AccessChecks
    versions: Versions
    recreates: bool = False
    as_listed: Callable[[pb.Resource], pb.Resource] | None = None


def unary_handlers(service: str, **methods: Method) -> dict[str, Handler]:
    """Return the handlers of a service by path. `test_methods.py` checks that they match the schema."""
    return {
        f"/{service}/{name}": Handler(_unary(answer), Cardinality.UNARY_UNARY, asked, answered)
        for name, (answer, asked, answered) in methods.items()
    }


def _unary(answer: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[None]]:
    async def serve(stream: Any) -> None:
        await stream.send_message(await answer(await stream.recv_message()))

    # In-process channels call the function directly, without a stream.
    setattr(serve, ANSWER, (serve, answer))
    return serve
