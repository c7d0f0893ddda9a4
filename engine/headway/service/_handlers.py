"""The table of a service's handlers by path, and the context of the verbs of a resource service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from typing_extensions import override

from headway.api import Cardinality, Handler
from headway.base import CallerTurns, KeyTurns
from headway.journal import WriteJournal
from headway.resource import pb
from headway.rpc import ANSWER
from headway.service._access import AccessChecks
from headway.service._encodings import ResourceEncodings
from headway.service._versions import Versions
from headway.storage import Backend

Method = tuple[Callable[[Any], Awaitable[Any]], type[Any], type[Any]]
"""A function that serves a method, and the types of its request and its response."""


class Context(NamedTuple):
    """The context of the verbs of one resource service.

    Attributes:
        access: the types, and the checks of the caller's rights.
        versions: converts between versions of a kind.
        turns: the turns of the writes without a version that have lost a race, at their resources.
        recreates: a Write that names the uid of a deleted incarnation creates a new one, as in Consul.
        as_listed: returns the form of a stored resource that lists send; None sends resources as stored.
        journal: records the committed writes with their writers; None records nothing.
        encodings: the bytes of resources that lists send to the network, shared with watches; None keeps none.
        reads: limits how many lists and snapshots for the network hold a part of the store decoded at once; None if the
            store shares its resources.
    """

    backend: Backend
    access: AccessChecks
    versions: Versions
    turns: KeyTurns
    recreates: bool = False
    as_listed: Callable[[pb.Resource], pb.Resource] | None = None
    journal: WriteJournal | None = None
    encodings: ResourceEncodings | None = None
    reads: CallerTurns | None = None


class Handlers(Mapping[str, Handler]):
    """The handlers of a service by path. Each is made when it is looked up.

    A guard makes a new service for each request and looks up one handler. To make all of them takes as long as a short
    call.

    Args:
        makers: by path, the functions that make the handlers.
        about: the arguments of these functions.
    """

    def __init__(self, makers: Mapping[str, Callable[..., Handler]], *about: object) -> None:
        self._makers = makers
        self._about = about

    @override
    def __getitem__(self, path: str) -> Handler:
        return self._makers[path](*self._about)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    @override
    def __len__(self) -> int:
        return len(self._makers)


def unary_handlers(service: str, **methods: Method) -> Handlers:
    """Return the handlers of a service by path. `test_methods.py` checks that they match the schema."""
    return Handlers({f"/{service}/{name}": partial(unary_handler, *method) for name, method in methods.items()})


def unary_handler(answer: Callable[[Any], Awaitable[Any]], request: type[Any], response: type[Any]) -> Handler:
    """Return the handler of a method that a function from request to response serves."""
    return Handler(_unary(answer), Cardinality.UNARY_UNARY, request, response)


def _unary(answer: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[None]]:
    async def serve(stream: Any) -> None:
        await stream.send_message(await answer(await stream.recv_message()))

    # In-process channels call the function directly, without a stream.
    setattr(serve, ANSWER, (serve, answer))
    return serve
