"""Reads of the keys under the prefix, in pages, at one revision."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from headway._gen.etcdserverpb import RangeRequest, RequestOp, TxnRequest
from headway._gen.mvccpb import KeyValue
from headway.errors import HistoryCompacted, StoreUnusable
from headway.resource import Position
from headway.storage._timeline import Timeline
from headway.storage.etcd._client import EtcdClient, understood
from headway.storage.etcd.layout import (
    FENCE,
    LEASE,
    RESOURCE,
    RULES,
    Head,
    KeyRange,
    Layout,
    Mirror,
    OtherHistory,
    etcd_revision,
    head_from,
    timeline_from,
)


def check_same_history(seen: Position, store_id: str | None, timeline: Timeline | None, head: Head | None) -> None:
    """Raise OtherHistory unless ``seen``, a position returned before, is in the history that etcd has now.

    A cluster that was restored from a backup has the same store id. This check detects it by its lower revision. If its
    revision is no longer lower, the first engine to open it has begun a session below ``seen``, which shows the same.
    A position below all known sessions cannot be checked by them.
    """
    if store_id != seen.store_id:
        raise OtherHistory(f"expected store id {seen.store_id}, got {store_id or 'none'}")
    if timeline is None or head is None:
        raise OtherHistory("the store's anchor key or head key is missing")
    if head.revision < seen.revision:
        raise OtherHistory(f"the store is at revision {head.revision}, below {seen.revision}, which it had reached")
    left = timeline.lefts().get(seen.session, timeline.oldest - 1)
    if left is not None and seen.revision > left:
        raise OtherHistory(f"revision {seen.revision} of session {seen.session} is not in this history")


def check_standing(mirror: Mirror, head: Head) -> bool:
    """Return True if nothing was committed since the mirror's head. Raise OtherHistory if the head differs."""
    if head.revision > mirror.head.revision:
        return False
    if head != mirror.head:
        raise OtherHistory(f"etcd now has another commit at revision {head.revision}")
    return True


FIRST_PAGE, PAGE = 100, 1000
"""The number of keys in the first page, when their size is still unknown, and the maximum in later ones."""

PAGE_BYTES = 16 << 20
"""The target size of a page in bytes. Pages of large values have fewer keys."""


class Standing(NamedTuple):
    """The state of a store's own keys at one revision.

    Attributes:
        revision: etcd's revision of the read. It is at or above the revision of the head's transaction.
        first: etcd's revision of the first transaction, or 0 without one.
        store_id, timeline, head: None if their keys do not exist.
    """

    revision: int
    first: int
    store_id: str | None
    timeline: Timeline | None
    head: Head | None


async def read_standing(client: EtcdClient, layout: Layout, revision: int = 0) -> Standing:
    """Read the store's own keys, now or at a revision, linearizably. Raise HistoryCompacted if it is not kept."""
    keys = (layout.store, layout.anchor, layout.head)
    reads = [RequestOp(request_range=RangeRequest(key=key, revision=revision)) for key in keys]
    reply = await client.read(TxnRequest(success=reads))
    store, anchor, head = (_first(each.response_range.kvs) for each in reply.responses if each.response_range)
    assert reply.header is not None
    with understood(client.where):
        return Standing(
            revision or reply.header.revision,
            head.create_revision if head is not None else 0,
            store.value.decode() if store is not None else None,
            timeline_from(anchor) if anchor is not None else None,
            head_from(head) if head is not None else None,
        )


async def load_mirror(
    client: EtcdClient,
    layout: Layout,
    counts: Counter[str],
    *,
    former: Mirror | None,
    revision: int = 0,
    max_changes: int,
    max_age: float,
    max_bytes: int,
) -> tuple[Mirror, int]:
    """Read a mirror of the store, as it is now or was at a revision. Return it with the etcd revision of the read.

    Raises:
        StoreUnusable: the prefix has no store.
        HistoryCompacted: etcd no longer has the revision.
    """
    standing = await read_standing(client, layout, revision)
    if standing.store_id is None or standing.timeline is None or standing.head is None:
        raise StoreUnusable(f"store not found at {client.where}: its id, its anchor or its head is missing")
    mirror = Mirror(
        layout,
        standing.store_id,
        standing.timeline,
        standing.head,
        counts,
        max_changes=max_changes,
        max_age=max_age,
        max_bytes=max_bytes,
    )
    for segment in (FENCE, LEASE, RULES, RESOURCE):
        take = functools.partial(mirror.load, former=former)
        await read_pages(client, layout.under(segment), standing.revision, take)
    return mirror, standing.revision


async def earliest(client: EtcdClient, layout: Layout, now: Standing, transactions: int) -> int:
    """Return etcd's oldest kept revision, or the revision before the last ``transactions``, whichever is later."""
    assert now.head is not None
    wanted = now.head.sequence - transactions

    async def reaches(revision: int) -> bool:
        try:
            reply = await client.range(RangeRequest(key=layout.head, revision=revision, keys_only=True))
        except HistoryCompacted:
            return False
        return bool(reply.kvs) and reply.kvs[0].version >= wanted

    # Invariant: the result is above `below` and at most `found`.
    below, found = now.first - 1, etcd_revision(now.head.revision)
    guess = now.first
    while found - below > 1:
        if await reaches(guess):
            found = guess
        else:
            below = guess
        guess = (below + found) // 2
    return found


async def read_pages(client: EtcdClient, keys: KeyRange, revision: int, take: Callable[[list[KeyValue]], None]) -> None:
    """Call ``take`` with each page of a range's keys, all as they were at one revision."""
    begin, limit, more = keys.key, FIRST_PAGE, True
    while more:
        request = RangeRequest(key=begin, range_end=keys.end, revision=revision, limit=limit)
        reply = await client.range(request)
        more = reply.more
        if reply.kvs:
            with understood(client.where):
                take(reply.kvs)
            begin = reply.kvs[-1].key + b"\0"
            size = sum(len(kv.value) for kv in reply.kvs) / len(reply.kvs)
            limit = max(1, min(PAGE, int(PAGE_BYTES / (size + 1))))


def _first(kvs: list[KeyValue]) -> KeyValue | None:
    return kvs[0] if kvs else None
