"""The details of a status: messages for programs that a server sends beside the status and its text.

gRPC sends them in the trailer ``grpc-status-details-bin``, as a google.rpc.Status. `GRPCError.details` holds them as a
sequence of ``google.protobuf.Any``: the services and their clients know the types of the messages, and `rpc` does not.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence

from grpclib.const import Status
from grpclib.encoding.base import StatusDetailsCodecBase
from grpclib.metadata import decode_bin_value

from headway.errors import PayloadError
from headway.protobuf import decode, encode, field, message
from headway.resource import AnyMessage

TRAILER = "grpc-status-details-bin"


@message(name="google.rpc.Status")
class _Status:
    """A status as gRPC's clients expect it in the trailer. They compare its code and message with the call's."""

    code: int = field(1)
    message: str = field(2)
    details: list[AnyMessage] = field(3)


class StatusDetails(StatusDetailsCodecBase):
    """grpclib's codec of the trailer."""

    def encode(self, status: Status, message: str | None, details: Sequence[AnyMessage]) -> bytes:
        """Return the content of the trailer."""
        return encode(_Status(code=status.value, message=message or "", details=list(details)))

    def decode(self, status: Status, message: str | None, data: bytes) -> Sequence[AnyMessage]:  # noqa: ARG002
        """Return the details in the content of the trailer."""
        return decode(_Status, data).details


def details_in(status: Status, message: str | None, trailer: str | None) -> Sequence[AnyMessage] | None:
    """Return the details in a trailer. A missing trailer has none, and neither has one that does not decode."""
    if trailer is None:
        return None
    try:
        return StatusDetails().decode(status, message, decode_bin_value(trailer.encode("ascii")))
    except (UnicodeEncodeError, binascii.Error, PayloadError):
        return None
