"""Calls of services that the client has no methods for."""

from __future__ import annotations

from typing import TypeVar

from headway.client._client import Client
from headway.client._refusals import of_client

Reply = TypeVar("Reply")


async def call_service(client: Client, path: str, request: object, reply_type: type[Reply]) -> Reply:
    """Call a unary method that changes something, on the client's channel and with its token.

    Raises the errors of the client's writes. UNAVAILABLE is OutcomeUnknown within the process too, because such a
    method may consist of several writes.
    """
    with of_client(write=True):
        return await client._channel.unary(path, request, reply_type, metadata=client._metadata)
