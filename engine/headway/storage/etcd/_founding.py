"""The first steps of opening a store: check if it exists, create its id if not, and begin a new session."""

from __future__ import annotations

import os
import uuid

import trio

from headway._gen.etcdserverpb import RangeRequest, RequestOp, TxnRequest
from headway.errors import OutcomeUnknown, StoreUnusable, Unavailable
from headway.storage.etcd._address import EtcdAddress
from headway.storage.etcd._client import CALL_TIMEOUT, EtcdClient, open_client
from headway.storage.etcd._snapshot import read_standing
from headway.storage.etcd.layout import (
    ANCHOR,
    Layout,
    anchor_value,
    empty,
    etcd_revision,
    head_value,
    putting,
    unchanged,
)


async def is_founded(address: EtcdAddress) -> bool:
    """Return True if the store exists, that is if it has an id. Its first opening creates the id.

    Writes nothing. Raises the same errors as opening the store.
    """
    async with open_client(address, None) as client:
        return (await read_standing(client, Layout(address.prefix))).store_id is not None


async def begin_session(client: EtcdClient, layout: Layout) -> None:
    """Begin a session: write the anchor by a commit. A store without an id gets a random one, which never changes."""
    session = uuid.uuid4().hex
    gives_up_at = trio.current_time() + 3 * CALL_TIMEOUT
    while trio.current_time() < gives_up_at:
        standing = await read_standing(client, layout)
        timeline = standing.timeline
        if timeline is not None and timeline.eras[-1][1] == session:
            return
        compared = [unchanged(layout.anchor, etcd_revision(timeline.eras[-1][0]) if timeline is not None else 0)]
        written = [putting(layout.anchor, anchor_value(session, timeline))]
        if standing.store_id is None and timeline is None:
            await _refuse_neighbors(client, layout)
            # Compare this too, because another store may be founded after the read.
            compared += [empty(layout.everything), *(unchanged(key, 0) for key in layout.above)]
        if standing.store_id is None:
            compared.append(unchanged(layout.store, 0))
            written.append(putting(layout.store, uuid.uuid4().hex.encode()))
        # The change of the store's id is not counted, because no engine follows a store before it has an id.
        written.append(putting(layout.head, head_value((1,), os.urandom(8))))
        try:
            if (await client.write(TxnRequest(compare=compared, success=written))).succeeded:
                return
        except OutcomeUnknown:
            # The next read shows if the session has begun.
            continue
    raise Unavailable(f"the store at {client.where} could not be opened: other engines that open it kept changing it")


async def _refuse_neighbors(client: EtcdClient, layout: Layout) -> None:
    """Raise StoreUnusable if the prefix is below or above another store, or has keys of another program."""
    below = layout.everything
    reads = [RangeRequest(key=key, keys_only=True) for key in layout.above]
    reads.append(RangeRequest(key=below.key, range_end=below.end, limit=1, keys_only=True))
    try:
        reply = await client.read(TxnRequest(success=[RequestOp(request_range=each) for each in reads]))
    except StoreUnusable as error:
        raise StoreUnusable(
            f"{error}. To create a store, this user must be able to read the keys under its prefix, and "
            f"{', '.join(key.decode() for key in layout.above) or 'nothing else'}, the ids of possible stores above it"
        ) from error
    found = [kv.key for each in reply.responses if each.response_range for kv in each.response_range.kvs]
    # Another engine may have founded this store since the read. The transaction then fails, and is repeated.
    if not found or found[0] == layout.anchor:
        return
    key = found[0]
    # A store's anchor is the first of its keys.
    store = layout.above.get(key) or key.decode(errors="replace").removesuffix(f"/{ANCHOR.decode()}")
    what = f"{store} is a store already" if key in layout.above or key.endswith(b"/" + ANCHOR) else f"{store} exists"
    raise StoreUnusable(
        f"a store cannot be created at {client.where}: {what}, and their keys would be mixed. "
        "Give the store a prefix of its own, neither above nor below the prefix of another store"
    )
