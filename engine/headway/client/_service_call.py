"""Calls of services that the client has no methods for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from headway.api import Call, Channel
from headway.client._client import Client
from headway.client._refusals import of_client

Request = TypeVar("Request")
Reply = TypeVar("Reply")


async def call_service(
    client: Client,
    method: Callable[[Channel], Callable[[Call, Request], Awaitable[Reply]]],
    request: Request,
    *,
    write: bool = True,
) -> Reply:
    """Call a unary method, on the client's channel and with its token.

    ``method`` returns it for a channel: ``lambda channel: StoreApi.over(channel).position``.

    Raises the errors of the client's writes, or of its reads if the method changes nothing (``write=False``). For a
    write, UNAVAILABLE is OutcomeUnknown within the process too, because it may consist of several writes of the store.
    """
    with of_client(write=write):
        return await method(client._channel)(Call(client._metadata), request)
