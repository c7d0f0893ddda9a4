"""The size limit of a list's reply, and its encoding in pieces, so that no list blocks other callers."""

from __future__ import annotations

from collections.abc import Callable

from grpclib import GRPCError
from grpclib.const import Status

from headway._turns import give_way
from headway.protobuf import encode
from headway.resource import pb
from headway.rpc import PIECE, Encoded

MAX_REPLY = 64 << 20
"""The largest list reply over a network, in bytes: our clients accept no larger message."""

TURN = 250
"""The number of resources to examine or encode between two checkpoints. It takes a few milliseconds with filters and
rules.
"""

# Bytes that are encoded without a checkpoint.
_AT_ONCE = 1 << 20
# Bytes of a stored resource without its names and contents: tags, lengths, version and generation.
_LEAST = 40
# The same for an entry of a map.
_ENTRY = 4
_RESOURCES = b"\x0a"
_SHORT = 0x80


class Kept:
    """The resources collected for a list so far.

    Args:
        most: the maximum size of the reply in bytes; None in-process, where nothing is encoded.
        instead: what to request instead when the reply would be too large.
        as_sent: returns the form of a stored resource that the caller gets; None returns it as stored.
    """

    def __init__(
        self, most: int | None, instead: str, as_sent: Callable[[pb.Resource], pb.Resource] | None = None
    ) -> None:
        self.resources: list[pb.Resource] = []
        self._most = most
        self._instead = instead
        self._as_sent = as_sent
        self._size = 0

    @property
    def is_large(self) -> bool:
        """True if the reply will be encoded, and is too large to encode without checkpoints."""
        return self._most is not None and (len(self.resources) > TURN or self._size > _AT_ONCE)

    def add(self, resource: pb.Resource) -> None:
        """Add a resource. Raises RESOURCE_EXHAUSTED if the reply would be too large."""
        self.resources.append(resource if self._as_sent is None else self._as_sent(resource))
        if self._most is not None:
            self._size += _least_size(resource)
            if self._size > self._most:
                raise self._exhausted()

    def is_full(self) -> bool:
        """Return True if there may be no room for another resource."""
        # A resource takes at most half: it came in one message that the server accepted.
        return self._most is not None and self._size > self._most // 2

    async def encoded(
        self, reply: pb.ListResponse | pb.ListByOwnerResponse, hold: Callable[[int], None] = lambda _: None
    ) -> Encoded:
        """Return the encoded reply. ``hold`` is called with the total number of bytes as it grows."""
        pieces: list[bytes] = []
        held: list[bytes] = []
        size = total = 0
        for index, resource in enumerate(reply.resources, 1):
            body = encode(resource)
            head = _RESOURCES + _varint(len(body))
            held += (head, body)
            size += len(head) + len(body)
            total += len(head) + len(body)
            if self._most is not None and total > self._most:
                raise self._exhausted()
            if size >= PIECE:
                pieces.append(b"".join(held))
                held, size = [], 0
                hold(total)
                await give_way()
            elif index % TURN == 0:
                await give_way()
        reply.resources = []
        pieces.append(b"".join([*held, encode(reply)]))
        return Encoded(pieces)

    def _exhausted(self) -> GRPCError:
        return GRPCError(
            Status.RESOURCE_EXHAUSTED,
            f"the list would take more than {(self._most or 0) >> 20} MiB in one reply: {self._instead}",
        )


def _least_size(resource: pb.Resource) -> int:
    """Return a lower bound, close to the real value, of the number of bytes that a resource takes on the wire."""
    size = _LEAST + _id_size(resource.id) + _id_size(resource.owner)
    if resource.data is not None:
        size += len(resource.data.type_url) + len(resource.data.value)
    for key, value in resource.metadata.items():
        size += _ENTRY + len(key) + len(value)
    for key, status in resource.status.items():
        size += _ENTRY + len(key)
        for condition in status.conditions:
            size += len(condition.type) + len(condition.reason) + len(condition.message)
    return size


def _id_size(id: pb.Id | None) -> int:
    if id is None or id.type is None or id.tenancy is None:
        return 0
    type, tenancy = id.type, id.tenancy
    units = len(tenancy.partition) + len(tenancy.namespace)
    return len(id.uid) + len(id.name) + len(type.group) + len(type.group_version) + len(type.kind) + units


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= _SHORT:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
