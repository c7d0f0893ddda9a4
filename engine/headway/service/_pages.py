"""The replies of lists: bounded in size, encoded in pieces so that no list blocks other callers, and page by page."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import lru_cache
from operator import itemgetter
from typing import TypeVar

from headway.api import Call, Exhausted
from headway.base import give_way, in_order
from headway.errors import InvalidArgument
from headway.protobuf import decode, encode, varint
from headway.resource import Key, Kind, Position, pb, quoted, resource_key
from headway.rpc import Encoded
from headway.service._bounds import MAX_TOKEN, check_text
from headway.service._context import Context
from headway.service._encodings import ResourceEncodings, in_pieces
from headway.service._forms import Ready, View
from headway.service._sizes import least_size
from headway.storage import Backend, Within, list_part

MAX_REPLY = 64 << 20
"""The largest list reply over a network, in bytes: our clients accept no larger message."""

TURN = 250
"""The number of resources to examine or encode between two checkpoints. It takes a few milliseconds with filters and
rules.
"""

# Bytes that are encoded without a checkpoint.
_AT_ONCE = 1 << 20
# Kept bytes are only joined: as many resources at once, and as many pieces, about 1 MiB, without a checkpoint.
_JOINED = 4000
_JOINED_PIECES = 16
_RESOURCES = b"\x0a"
# Bytes of memory of a key beside the resource's own.
_KEYED = 400


Reply = TypeVar("Reply", pb.ListResponse, pb.ListByOwnerResponse)


class ListReply:
    """The resources collected for a list so far.

    In process they are the resources themselves. For a network they are encoded soon after they have been read: decoded
    resources take many times the memory of their bytes, and only the bytes count toward the memory that replies may
    take in all.

    Args:
        stream: the call's. In process nothing is encoded, so the reply has no maximum size.
        instead: what to request instead when the reply would be too large.
        context: its ``as_listed``, ``encodings`` and ``reads`` apply.

    Attributes:
        encodes: True for a network.
        count: the number of resources.
        last: the key of the last one; None without resources.
    """

    def __init__(self, call: Call, instead: str, context: Context) -> None:
        self.count = 0
        self.last: Key | None = None
        self._call = call
        self.encodes = call.encodes
        self._most = MAX_REPLY if self.encodes else None
        self._instead = instead
        self._as_listed = context.as_listed
        self._encodings = context.encodings or ResourceEncodings(0)
        self._reads = context.reads if self.encodes else None
        # A lower bound of the size, which counts resources that are not encoded yet, too.
        self._size = 0
        self._resources: list[pb.Resource] = []
        # The bytes of resources, if all of a read were kept already.
        self._kept: list[bytes] = []
        self._pieces: list[bytes] = []
        self._encoded = 0

    @asynccontextmanager
    async def read(self) -> AsyncIterator[None]:
        """Wait for this list's turn to read some resources, which are encoded at the end of the block."""
        async with self._reads or nullcontext():
            yield
            await self._encode()

    def add(self, resource: pb.Resource) -> None:
        """Add a resource. Raises Exhausted if the reply would be too large."""
        self._resources.append(resource if self._as_listed is None else self._as_listed(resource))
        self.count += 1
        self.last = resource_key(resource)
        if self._most is not None:
            self._count(least_size(resource))

    def add_all(self, resources: Sequence[pb.Resource]) -> None:
        """Add the resources of a whole read, some hundred, like `add`."""
        listed = resources if self._as_listed is None else [*map(self._as_listed, resources)]
        self.count += len(listed)
        bodies = None if self._most is None else self._encodings.kept(listed)
        if bodies is None:
            self._resources += listed
            if self._most is not None:
                self._count(sum(map(least_size, listed)))
        else:
            self._kept += bodies
            self._count(sum(map(len, bodies)))

    async def sort(self) -> None:
        """Sort the resources by key."""
        if not self.encodes:
            self._resources = await in_order(self._resources, resource_key)
            return
        keyed: list[tuple[Key, bytes]] = []
        for piece in self._pieces:
            keyed += [(resource_key(each), encode(each)) for each in decode(pb.ListResponse, piece).resources]
            # Both are held.
            self._call.hold(self._encoded + sum(len(body) + _KEYED for _, body in keyed))
            await give_way()
        self._pieces, self._encoded = [], 0
        self._kept = [body for _, body in await in_order(keyed, itemgetter(0))]
        await self._encode()

    def is_full(self) -> bool:
        """Return True if there may be no room for another resource."""
        # A resource takes at most half: it came in one message that the server accepted.
        return self._most is not None and self._size > self._most // 2

    def reply(self, rest: Reply) -> Reply | Encoded:
        """Return the reply with these resources and the rest of it."""
        if not self.encodes:
            rest.resources = self._resources
            return rest
        return Encoded([*self._pieces, encode(rest)])

    async def _encode(self) -> None:
        """Encode what was added since the last call, with turns for other tasks between the pieces of a large list."""
        if not self.encodes:
            return
        large = self.count > TURN or self._size > _AT_ONCE
        joins = bool(self._kept)
        for number, piece in enumerate(self._new_pieces(), 1):
            self._pieces.append(piece)
            self._encoded += len(piece)
            if self._most is not None and self._encoded > self._most:
                raise self._exhausted()
            self._call.hold(self._encoded)
            if large and (not joins or number % _JOINED_PIECES == 0):
                await give_way()

    def _new_pieces(self) -> Iterator[bytes]:
        kept, resources = self._kept, self._resources
        self._kept, self._resources = [], []
        for begin in range(0, len(kept), _JOINED):
            yield from in_pieces(kept[begin : begin + _JOINED], _head)
        for begin in range(0, len(resources), TURN):
            yield from self._encodings.pieces(resources[begin : begin + TURN], _head)

    def _count(self, size: int) -> None:
        self._size += size
        if self._most is not None and self._size > self._most:
            raise self._exhausted()

    def _exhausted(self) -> Exhausted:
        return Exhausted(f"the list would take more than {(self._most or 0) >> 20} MiB in one reply: {self._instead}")


@lru_cache(4096)
def _head(size: int) -> bytes:
    return _RESOURCES + varint(size)


_LEAST_READ = 256
"""The minimum number of resources per further read of a page: a filter may leave few of them."""

_MOST_READ = 5000
"""The maximum number of resources per read, however large the page."""


class PageTokens:
    """The tokens that connect the pages of one query. A token of another query, or of another store, is refused.

    Args:
        query: the query as a text.
        same: the advice for a token of another query.
    """

    def __init__(self, backend: Backend, query: str, same: str) -> None:
        self._backend = backend
        self._query = hashlib.sha256(query.encode()).hexdigest()[:16]
        self._same = same

    def token(self, *place: str) -> str:
        """Return the token for the page that begins after this place."""
        parts = [self._backend.position.store_id, self._query, *place]
        return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()

    def place(self, token: str, *sizes: int) -> Sequence[str]:
        """Return the place of a token, which must have one of these sizes; nothing for an empty token."""
        if not token:
            return ()
        check_text("page_token", token, MAX_TOKEN)
        try:
            parts = json.loads(base64.urlsafe_b64decode(token))
        except (binascii.Error, ValueError, RecursionError):
            parts = None
        # Names are ASCII, and not every store can look up a lone surrogate.
        if (
            not isinstance(parts, list)
            or len(parts) - 2 not in sizes
            or not all(isinstance(part, str) and part.isascii() for part in parts)
        ):
            raise InvalidArgument(
                f"page_token {quoted(token)} is invalid: send the next_page_token of the previous page"
            )
        store_id, query, *place = parts
        if query != self._query:
            raise InvalidArgument(f"page_token belongs to another query: {self._same}")
        if store_id != (here := self._backend.position.store_id):
            raise InvalidArgument(
                f"page_token belongs to store {store_id}, but this is {here}: begin again with the first page"
            )
        return place


async def read_page(
    backend: Backend,
    kind: Kind,
    within: Within,
    tokens: PageTokens,
    request: pb.ListRequest,
    wanted: View,
    collected: ListReply,
    ready: Ready | None,
) -> tuple[str, Position]:
    """Read one page into ``collected``. Return the next page's token and the position of the first read.

    Resources are ordered by key. With a page size of 0, a single page contains all of them. Otherwise a page may end
    early, so that the reply does not become too large.

    Each page is read only when it is requested. A resource that exists throughout is therefore on exactly one page,
    but a resource that is created or deleted between two requests may be missing.
    """
    place = tokens.place(request.page_token, 3)
    after: Key | None = (place[0], place[1], place[2]) if place else None
    size = request.page_size
    limit = min(size + 1, _MOST_READ) if size else _MOST_READ
    position: Position | None = None
    while True:
        async with collected.read():
            stored, after, here = await list_part(backend, kind, within, after, limit)
            position = position or here
            for index, resource in enumerate(stored, 1):
                if index % TURN == 0:
                    await give_way()
                if ready is not None:
                    await ready(resource)
                if (seen := wanted(resource)) is not None:
                    if size and collected.last and (collected.count == size or collected.is_full()):
                        return tokens.token(*collected.last), position
                    collected.add(seen)
            if after is None:
                return "", position
            limit = max(limit, _LEAST_READ)
            # They are not needed while this list waits for its next turn.
            if stored:
                del resource, seen
            del stored
