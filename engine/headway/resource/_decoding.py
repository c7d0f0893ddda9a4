"""Decode stored resources. Those of one type or tenancy share its message, in their ids, owners and references."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from headway._gen.headway.resource import v1 as pb
from headway.errors import PayloadError
from headway.protobuf import sharing_decoder_of


@cache
def resource_decoder() -> Callable[[bytes, int, int], pb.Resource]:
    """Return a function ``decoder(data, begin, end)``. Nobody may change the types and tenancies in its results."""
    return sharing_decoder_of(pb.Resource, pb.Type, pb.Tenancy)


def decode_resource(body: bytes) -> pb.Resource:
    """Decode a resource. Nobody may change the types and tenancies in it. Raises PayloadError."""
    try:
        return resource_decoder()(body, 0, len(body))
    except PayloadError as error:
        raise PayloadError(f"not a valid Resource: {error}") from error.__cause__
