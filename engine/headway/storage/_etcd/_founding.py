"""The beginning of an opening: whether there is a store, its id, if it has none yet, and a new incarnation."""

from __future__ import annotations

import os
import uuid

import trio

from headway._gen.etcdserverpb import TxnRequest
from headway.errors import OutcomeUnknown, Unavailable
from headway.storage._etcd._address import EtcdAddress
from headway.storage._etcd._client import CALL_TIMEOUT, EtcdClient, open_client
from headway.storage._etcd._layout import Layout
from headway.storage._etcd._records import anchor_value, etcd_revision, head_value
from headway.storage._etcd._snapshot import read_standing
from headway.storage._etcd._transaction import putting, unchanged


async def is_founded(address: EtcdAddress) -> bool:
    """Whether there is a store, which has its id from its first opening on. Writes nothing; raises as an opening."""
    async with open_client(address, None) as client:
        return (await read_standing(client, Layout(address.prefix))).store_id is not None


async def begin_incarnation(client: EtcdClient, layout: Layout) -> None:
    """Rewrite the anchor by a commit. A store that has no id gets one, at random, for ever."""
    incarnation = uuid.uuid4().hex
    gives_up_at = trio.current_time() + 3 * CALL_TIMEOUT
    while trio.current_time() < gives_up_at:
        standing = await read_standing(client, layout)
        timeline = standing.timeline
        if timeline is not None and timeline.eras[-1][1] == incarnation:
            return
        compared = [unchanged(layout.anchor, etcd_revision(timeline.eras[-1][0]) if timeline is not None else 0)]
        written = [putting(layout.anchor, anchor_value(incarnation, timeline))]
        if standing.store_id is None:
            compared.append(unchanged(layout.store, 0))
            written.append(putting(layout.store, uuid.uuid4().hex.encode()))
        # The store's id is not counted: nobody follows a store before it has one.
        written.append(putting(layout.head, head_value((1,), os.urandom(8))))
        try:
            if (await client.write(TxnRequest(compare=compared, success=written))).succeeded:
                return
        except OutcomeUnknown:
            # Whether it has begun shows when it is looked at again.
            continue
    raise Unavailable(f"the store at {client.where} could not be opened: other engines were always first")
