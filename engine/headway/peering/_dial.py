"""Connections of the dialing side, and the exchange of a token's secret."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from headway._gen.headway.peering.v1 import ExchangeSecretRequest, ExchangeSecretResponse, Peering, Secrets
from headway.api import FAILED, code_of
from headway.client import LASTING, client_error
from headway.errors import HeadwayError, InvalidArgument
from headway.peering._write_rules import check_way
from headway.resource import Resource

if TYPE_CHECKING:
    from headway.rpc import RemoteChannel, StreamDecoder

EXCHANGE = "/headway.peering.v1.PeeringService/ExchangeSecret"
EXCHANGE_TIMEOUT = 10.0
"""The timeout of an exchange, in seconds."""

_MAX_SECRET = 255


class ExchangeRefused(HeadwayError):
    """The accepting side has refused the exchange, and would refuse it again."""


@asynccontextmanager
async def open_peer_channel(
    peering: Peering,
    decoders: Mapping[str, Callable[[], StreamDecoder]] | None = None,
    *,
    timeout: float = EXCHANGE_TIMEOUT,
) -> AsyncIterator[RemoteChannel]:
    """Open a channel to the accepting side of a dialing peering.

    Raises:
        InvalidArgument: its addresses or certificates are not valid, or plain text would leave the machine.
    """
    from headway.rpc import client_tls_of_text, open_channel

    check_way(peering.addresses, peering.server_name, peering.ca, "", plain_text=peering.plain_text)
    if not peering.addresses:
        raise InvalidArgument("addresses is empty: a dialing peering needs the addresses of the accepting side")
    tls = None
    if not peering.plain_text:
        try:
            tls = client_tls_of_text(peering.ca)
        except OSError as error:
            raise InvalidArgument(f"ca has no valid certificates: {error}") from None
    async with open_channel(
        peering.addresses, tls=tls, server_name=peering.server_name or None, decoders=decoders, timeout=timeout
    ) as channel:
        yield channel


async def exchange(
    peering: Resource[Peering],
    record: Secrets,
    store_id: str,
    open_channel: Callable[..., AbstractAsyncContextManager[Any]] = open_peer_channel,
) -> ExchangeSecretResponse:
    """Exchange the secret of a token, as one attempt that may be repeated, and return the answer.

    ``open_channel`` opens the channel to the accepting side.

    Raises:
        ExchangeRefused: the other side has refused it for good.
        HeadwayError: no answer has arrived, and the attempt may be repeated.
    """
    request = ExchangeSecretRequest(
        peer_id=peering.data.peer_id,
        secret=record.token_secret,
        attempt=record.attempt,
        dialer_id=peering.id.uid,
        dialer_name=peering.name,
        dialer_store_id=store_id,
    )
    try:
        async with open_channel(peering.data) as channel:
            reply: ExchangeSecretResponse = await channel.unary(EXCHANGE, request, ExchangeSecretResponse)
    except InvalidArgument as error:
        raise ExchangeRefused(str(error)) from error
    except HeadwayError as error:
        if code_of(error) in LASTING:
            raise ExchangeRefused(str(client_error(error))) from error
        if isinstance(error, FAILED):
            raise client_error(error) from error
        raise
    if not reply.stream_secret or len(reply.stream_secret) > _MAX_SECRET or not reply.store_id:
        raise ExchangeRefused("the answer of the accepting side has no valid secret")
    if len(reply.store_id) > _MAX_SECRET:
        raise ExchangeRefused(f"the answer of the accepting side has a store id of {len(reply.store_id)} characters")
    return reply
