"""The details of a status in the trailer of a call."""

from __future__ import annotations

import pytest
from grpclib.const import Status

from headway.resource import AnyMessage
from headway.rpc import StatusDetails, details_in

DETAIL = AnyMessage(type_url="a/b.C", value=b"\x08\x01")
# google.rpc.Status, as every protobuf library writes it: code 9, the message, and one Any.
STATUS = b"\x08\x09\x12\x02no\x1a\x0b\x0a\x05a/b.C\x12\x02\x08\x01"


def test_details_are_sent_as_a_status_of_googles() -> None:
    """Clients of other languages decode them so, and compare the code and message with the call's."""
    codec = StatusDetails()
    assert codec.encode(Status.FAILED_PRECONDITION, "no", [DETAIL]) == STATUS
    assert codec.decode(Status.FAILED_PRECONDITION, "no", STATUS) == [DETAIL]


@pytest.mark.parametrize("trailer", [None, "!", "é", "/w", "AAAA"], ids=str)
def test_malformed_details_are_ignored(trailer: str | None) -> None:
    """The call's own status and message say enough."""
    assert not details_in(Status.INTERNAL, "why", trailer)
