"""The pages of a List and the tokens that connect them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json

from headway._turns import give_way
from headway.resource import Key, Kind, Position, quoted, resource_key
from headway.service._bounds import MAX_PAGE, MAX_TOKEN, check_text
from headway.service._list_reply import TURN, Kept
from headway.service._refusals import invalid
from headway.service._versions import View
from headway.storage import Backend, Within

_LEAST_READ = 256
"""The minimum number of resources per read: a filter may leave few of them."""

_MOST_READ = 5000
"""The maximum number of resources per read, however large the page: a store may have to decode them."""

# The store's id, the query's digest, and the key.
_PARTS = 5


def check_page(size: int, token: str) -> None:
    """Refuse an invalid page size or page token."""
    if not 0 <= size <= MAX_PAGE:
        raise invalid(f"page_size {size} must be from 1 to {MAX_PAGE}, or 0 for everything at once")
    check_text("page_token", token, MAX_TOKEN)


class Pages:
    """The pages of one query, ordered by key.

    A resource that exists all the time is on exactly one page, once. A resource that is created or deleted in the
    meantime may be on one page or none: each page is read when it is requested.

    Args:
        query: the query as a text; a token of another query, or of another store, is refused.
    """

    def __init__(self, backend: Backend, kind: Kind, within: Within, query: str) -> None:
        self._backend = backend
        self._kind = kind
        self._within = within
        self._query = hashlib.sha256(query.encode()).hexdigest()[:16]

    async def read(self, size: int, token: str, wanted: View, kept: Kept) -> tuple[str, Position]:
        """Keep the next ``size`` wanted resources (0: all). Return the next page's token and the position of the first
        read.

        A page ends early if the reply would become too large.
        """
        after = self._after(token)
        read_at_once = min(max(size + 1, _LEAST_READ), _MOST_READ) if size else 0
        page = kept.resources
        position: Position | None = None
        while True:
            stored, here = await self._backend.list(self._kind, self._within, after=after, limit=read_at_once)
            position = position or here
            for index, resource in enumerate(stored, 1):
                if index % TURN == 0:
                    await give_way()
                if (seen := wanted(resource)) is not None:
                    if size and page and (len(page) == size or kept.is_full()):
                        return self._token(resource_key(page[-1]), position), position
                    kept.add(seen)
            if not read_at_once or len(stored) < read_at_once:
                return "", position
            after = resource_key(stored[-1])

    def _token(self, last: Key, position: Position) -> str:
        return base64.urlsafe_b64encode(json.dumps([position.store_id, self._query, *last]).encode()).decode()

    def _after(self, token: str) -> Key | None:
        if not token:
            return None
        try:
            parts = json.loads(base64.urlsafe_b64decode(token))
        except (binascii.Error, ValueError, RecursionError):
            parts = None
        # Names are ASCII, and not every store can look up a lone surrogate.
        if (
            not isinstance(parts, list)
            or len(parts) != _PARTS
            or not all(isinstance(part, str) and part.isascii() for part in parts)
        ):
            raise invalid(f"page_token {quoted(token)} is invalid: send the next_page_token of the previous page")
        store_id, query, partition, namespace, name = parts
        if query != self._query:
            raise invalid("page_token belongs to another query: send the same type, tenancy, prefix and filter with it")
        if store_id != (here := self._backend.position.store_id):
            raise invalid(
                f"page_token belongs to store {store_id}, but this is {here}: begin again with the first page"
            )
        return (partition, namespace, name)
