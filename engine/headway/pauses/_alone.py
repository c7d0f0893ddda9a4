"""The pauses of a channel, without its other resources, for a process that answers about itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from typing_extensions import override

from headway.api import Call, ResourceApi, Stream, Wrapper
from headway.client import Client
from headway.errors import PermissionDenied
from headway.pauses._type import PAUSE
from headway.resource import type_name


class PausesAlone(Wrapper):
    """The resource service of a client's channel, of which callers reach the pauses alone."""

    def __init__(self, client: Client) -> None:
        super().__init__(ResourceApi.over(client._channel))

    @override
    async def unary(self, path: str, answer: Callable[[Call, Any], Awaitable[Any]], call: Call, request: Any) -> Any:
        _check(request)
        return await answer(call, request)

    @override
    def streaming(self, path: str, opened: Callable[[Call, Any], Stream[Any]], call: Call, request: Any) -> Stream[Any]:
        _check(request)
        return opened(call, request)


def is_of_pauses(request: Any) -> bool:
    """Return True if a request for resources is for pauses."""
    id = getattr(request, "id", None) or getattr(getattr(request, "resource", None), "id", None)
    type = getattr(request, "type", None) if id is None else id.type
    return type is not None and type_name(type) == PAUSE.name


def _check(request: Any) -> None:
    if not is_of_pauses(request):
        raise PermissionDenied("permission denied: this process answers about its controllers and their pauses alone")
