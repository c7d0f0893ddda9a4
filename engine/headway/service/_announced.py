"""What is known of a request before all of it is received or decoded: its id, and the caller's right to it."""

from __future__ import annotations

from typing import Any

from headway.errors import PayloadError
from headway.protobuf import decode, read_varint
from headway.resource import pb
from headway.service._access import AccessChecks
from headway.service._admission import admit_id

_OF_A_RESOURCE = (pb.WriteRequest, pb.MutateAndValidateRequest)
# The tag of a message in field 1.
_FIELD_1 = 0x0A
# The bytes of an id that is decoded before its request.
_LONGEST_ID = 4 << 10


def admit_announced(access: AccessChecks, request: Any) -> None:
    """Check what is known of a request before its body is received: the id, and the caller's right to read or write it.

    The errors are those of the method itself, which checks both again. Other requests than those for one resource pass.
    """
    if isinstance(request, _OF_A_RESOURCE):
        id, field = None if request.resource is None else request.resource.id, "resource.id"
    elif isinstance(request, (pb.ReadRequest, pb.WriteStatusRequest)):
        id, field = request.id, "id"
    else:
        return
    admit_id(access, id, field)
    assert id is not None
    if isinstance(request, pb.ReadRequest):
        access.check_read(id)
    else:
        access.check_write(id, None)


def announced_in(cls: type[Any], body: bytes) -> Any:
    """Return a message with the id of an encoded request, for `admit_announced`, or None if it does not begin with it.

    Every encoder begins with it, because fields are written in the order of their numbers.
    """
    try:
        if cls in _OF_A_RESOURCE:
            found = _first(_first(memoryview(body)))
        elif cls in (pb.ReadRequest, pb.WriteStatusRequest):
            found = _first(memoryview(body))
        else:
            return None
        if len(found) > _LONGEST_ID:
            # Its fields have not been counted.
            return None
        id = decode(pb.Id, bytes(found))
    except (IndexError, PayloadError):
        return None
    return cls(resource=pb.Resource(id=id)) if cls in _OF_A_RESOURCE else cls(id=id)


def _first(data: memoryview) -> memoryview:
    """Return the message with which a message begins, as its field 1. Raises PayloadError or IndexError."""
    size, begin = read_varint(data, 1)  # type: ignore[arg-type]  # it only indexes them
    if data[0] != _FIELD_1 or begin + size > len(data):
        raise PayloadError("it does not begin with field 1")
    return data[begin : begin + size]
