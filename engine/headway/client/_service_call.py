"""Calls of services that the client has no methods for."""

from __future__ import annotations

from typing import TypeVar

from headway.api import FAILED
from headway.client._client import Client
from headway.client._refusals import client_error

Reply = TypeVar("Reply")


async def call_service(client: Client, path: str, request: object, reply_type: type[Reply]) -> Reply:
    """Call a unary method that changes something, on the client's channel and with its token.

    Raises the errors of the client's writes. UNAVAILABLE is OutcomeUnknown within the process too, because such a
    method may consist of several writes.
    """
    try:
        return await client._channel.unary(path, request, reply_type, metadata=client._metadata)
    except FAILED as error:
        raise client_error(error, write=True) from error
