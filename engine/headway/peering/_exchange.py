"""The accepting side of an exchange: a token's secret for the secret of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio

from headway._gen.headway.peering import v1 as peering_pb
from headway.api import Call, Exhausted, ProgramFailed, ProgramFailedLate
from headway.errors import (
    AlreadyExists,
    CallerError,
    Conflict,
    FailedPrecondition,
    HeadwayError,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from headway.events import PeerRefused
from headway.peering._host import PeeringHost
from headway.peering._types import PEERING
from headway.rpc import is_loopback, peer_of
from headway.service import check_text

_ATTEMPTS = 8


@contextmanager
def refusing() -> Iterator[None]:
    """Turn the errors of the engine's own client into errors of this service.

    Unavailable leaves the outcome open over a network: the call may have written before.
    """
    try:
        yield
    except (AlreadyExists, Conflict, InvalidArgument, NotFound, PermissionDenied):
        raise
    except ProgramFailed as failed:
        raise ProgramFailedLate(str(failed), failed.cause) from failed.cause
    except CallerError as error:
        raise FailedPrecondition(str(error)) from error
    except HeadwayError as error:
        raise Unavailable(str(error)) from error


async def exchange_secret(
    host: PeeringHost, call: Call, request: peering_pb.ExchangeSecretRequest
) -> peering_pb.ExchangeSecretResponse:
    """Check the secret of a token, and return the secret of a stream."""
    peer = call.peer
    caller = "" if peer is None else peer_of(peer.addr())
    if host.failures.refuses(caller, trio.current_time()):
        raise Exhausted("too many failed exchanges from this host: try again in a minute")
    for field in ("peer_id", "attempt", "dialer_id", "dialer_name", "dialer_store_id"):
        check_text(field, getattr(request, field))
        if not getattr(request, field):
            raise InvalidArgument(f"{field} is required")
    if len(request.secret) > 255:
        raise InvalidArgument(f"secret has {len(request.secret)} characters: it must have at most 255")
    if request.dialer_store_id == host.backend.position.store_id:
        raise FailedPrecondition("the token was made by this store: a store cannot be its own peer")
    # A call within the process has no peer.
    plain_text = peer is not None and not call.encrypted
    if plain_text and not is_local(peer):
        raise FailedPrecondition("an exchange from another host must be over TLS")
    with refusing():
        try:
            name, stream_secret = await host.secrets.exchange(
                request.peer_id, request.secret, request.attempt, request.dialer_id, plain_text=plain_text
            )
        except (PermissionDenied, FailedPrecondition) as error:
            host.failures.add(caller, trio.current_time())
            host.report(PeerRefused, why=str(error), peer=caller)
            raise
        await _note_dialer(host, name, request)
    return peering_pb.ExchangeSecretResponse(stream_secret=stream_secret, store_id=host.backend.position.store_id)


def is_local(peer: Any) -> bool:
    """Return True for a caller on this machine."""
    address = peer.addr()
    return not isinstance(address, tuple) or is_loopback(address[0])


async def _note_dialer(host: PeeringHost, name: str, request: peering_pb.ExchangeSecretRequest) -> None:
    """Store in the accepting Peering which dialer has exchanged its token."""
    for _ in range(_ATTEMPTS):
        peering = await host.client.read(PEERING, name)
        if peering.id.uid != request.peer_id or peering.is_deleting:
            raise FailedPrecondition(f"peering {name} is being deleted: make a new token")
        data = peering.data
        wanted = (request.dialer_id, request.dialer_name, request.dialer_store_id)
        data.peer_id, data.peer_name, data.peer_store_id = wanted
        try:
            await host.client.write(peering)
        except Conflict:
            continue
        return
    raise Conflict(f"peering {name} kept being changed by others: try again")
