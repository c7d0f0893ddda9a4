"""Decode resources that stores and caches share, and never change: they share the messages of types and tenancies."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from headway._gen.headway.resource import v1 as pb
from headway.errors import PayloadError
from headway.protobuf import sharing_decoder_of


@cache
def resource_decoder() -> Callable[[bytes, int, int], pb.Resource]:
    """Return a function ``decoder(data, begin, end)``, whose results are for readers only."""
    return sharing_decoder_of(pb.Resource, pb.Type, pb.Tenancy)


def decode_resource(body: bytes) -> pb.Resource:
    """Decode a resource whose id, owner and references are for readers only. Raises PayloadError."""
    try:
        return resource_decoder()(body, 0, len(body))
    except PayloadError as error:
        raise PayloadError(f"not a valid Resource: {error}") from error.__cause__
