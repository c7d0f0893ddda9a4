"""Functions for programs that make and use tokens, over any client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway._gen.headway.peering import v1 as peering_pb
from headway._gen.headway.peering.v1 import Export, Peering
from headway.base import checked, repr_text
from headway.client import Client, call_service
from headway.errors import InvalidArgument, OutcomeUnknown
from headway.peering._service import PeeringService
from headway.peering._types import PEERING
from headway.resource import Resource, ResourceType, pb

Exported = ResourceType[Any] | Export
"""A type, which exports all of its resources, or the result of `export`."""


@checked(InvalidArgument, type="TEAM")
def export(type: ResourceType[Any], *, partition: str = "", namespace: str = "") -> Export:
    """Return an export of the type's resources in a partition or a namespace. An empty text means all of them.

    Resources in partitions with copies are never exported.
    """
    return Export(type=type.name.message(), tenancy=pb.Tenancy(partition=partition, namespace=namespace))


async def generate_token(
    client: Client,
    name: str,
    exports: Sequence[Exported] | None = (),
    *,
    addresses: Sequence[str] = (),
    server_name: str = "",
    ca: str = "",
    plain_text: bool = False,
) -> str:
    """Create a peering that accepts, and return a token for another engine.

    The token is a secret. It expires after an hour, and is exchanged once. To establish an existing peering again,
    generate another token: it invalidates the earlier one.

    Args:
        name: the name of the peering here. Its copies will be in partition ``peer-NAME``.
        exports: the types to copy to the other side, or parts of them (`export`). None keeps the present ones.
        addresses: the addresses at which the other side reaches this one. By default, those of `Network.listen`.
        server_name: the name in the engine's certificate. By default, the host of each address.
        ca: the authorities that sign the engine's certificate, in PEM. By default, the other side's system knows them.
        plain_text: allow an exchange and a stream without TLS, between processes of one machine.

    Raises:
        InvalidArgument: an argument is invalid. In particular, a cluster-scoped type cannot be exported.
        PermissionDenied: the caller may not write the peering, or not read what it exports.
        FailedPrecondition: the partition exists already or holds resources, or the engine has no TLS.
    """
    request = peering_pb.GenerateTokenRequest(
        name=_text("name", name),
        exports=_exports(exports or ()),
        addresses=[_text("addresses", each) for each in addresses],
        server_name=_text("server_name", server_name),
        ca=_text("ca", ca),
        plain_text=plain_text,
        keep_exports=exports is None,
    )
    reply = await call_service(client, lambda channel: PeeringService.over(channel).generate_token, request)
    return reply.token


async def establish(
    client: Client, name: str, token: str, exports: Sequence[Exported] = (), *, plain_text: bool = False
) -> Resource[Peering]:
    """Create a peering that dials, from a token of the other side, and exchange the token.

    Args:
        name: the name of the peering here. Its copies will be in partition ``peer-NAME``.
        token: the text that `generate_token` has returned there.
        exports: the types to copy to the other side, or parts of them (`export`). Without any, an existing peering
            keeps its own.
        plain_text: accept a token that says to connect without TLS.

    Raises:
        InvalidArgument: an argument is invalid, or the token is incomplete.
        FailedPrecondition: the token has expired or was exchanged already, or the partition exists already or
            holds resources. Nothing is left behind, and an existing peering stays as it was.
        OutcomeUnknown: the other side gave no answer. The engine tries again until the token expires.
        PermissionDenied: the caller may not write the peering, or not read what it exports.
    """
    request = peering_pb.EstablishRequest(
        name=_text("name", name), token=_text("token", token), exports=_exports(exports), plain_text=plain_text
    )
    reply = await call_service(client, lambda channel: PeeringService.over(channel).establish, request)
    if reply.peering is None:
        raise OutcomeUnknown("the reply to Establish has no peering")
    return Resource(PEERING, reply.peering)


def _text(field: str, given: object) -> str:
    if not isinstance(given, str):
        # The value may be a secret, such as the bytes of a token.
        raise InvalidArgument(f"{field} must be a string, not a {type(given).__name__}")
    return given


def _exports(given: Sequence[Exported]) -> list[Export]:
    if isinstance(given, ResourceType | Export) or not isinstance(given, Sequence):
        raise InvalidArgument(f"exports must be a list, such as [TEAM], got {repr_text(given)}")
    return [each if isinstance(each, Export) else export(each) for each in given]
