"""The addresses of the process that serves peers, where several processes share a store."""

from __future__ import annotations

from collections.abc import Sequence

from ulid_transform import ulid_now

from headway._gen.headway.peering.v1 import Leader
from headway.peering._host import PeeringHost
from headway.protobuf import decode, encode
from headway.resource import AnyMessage, Key, Kind, pb
from headway.rpc import address
from headway.storage import Put, StorageError, is_shared

LEADER_KIND: Kind = ("internal", "PeerLeader")
LEADER_URL = "type.googleapis.com/headway.peering.v1.Leader"
MOST_ADDRESSES = 16
"""The maximum number of addresses that a peer may name."""

_KEY: Key = ("", "", "leader")
_EVERYWHERE = ("0.0.0.0", "::")
_ATTEMPTS = 5


async def publish_leader(host: PeeringHost) -> None:
    """Store where this process listens. A store that only one process can open needs no such record."""
    if not is_shared(host.backend):
        return
    wanted = Leader(addresses=reachable(host.addresses))
    for _ in range(_ATTEMPTS):
        stored, _ = await host.backend.read(LEADER_KIND, _KEY)
        uid = ulid_now() if stored is None or stored.id is None else stored.id.uid
        type = pb.Type(group=LEADER_KIND[0], group_version="v1", kind=LEADER_KIND[1])
        id = pb.Id(uid=uid, name=_KEY[2], type=type, tenancy=pb.Tenancy(partition="", namespace=""))
        made = pb.Resource(id=id, data=AnyMessage(type_url=LEADER_URL, value=encode(wanted)))
        try:
            await host.backend.commit((Put(LEADER_KIND, _KEY, made, "" if stored is None else stored.version),))
        except StorageError:
            continue
        return


async def known_leader(host: PeeringHost) -> Leader:
    """Return the addresses of the process that serves peers. They are empty if it is not known."""
    stored, _ = await host.backend.read(LEADER_KIND, _KEY)
    data = None if stored is None else stored.data
    return Leader() if data is None else decode(Leader, data.value)


def reachable(addresses: Sequence[str]) -> list[str]:
    """Return the addresses that name a host."""
    return [each for each in addresses if address(each).host not in _EVERYWHERE]


def leader_in(details: object) -> list[str]:
    """Return the addresses in the details of a status. They are a peer's text, so they may be anything."""
    for detail in details if isinstance(details, Sequence) else ():
        if isinstance(detail, AnyMessage) and detail.type_url == LEADER_URL:
            try:
                return [str(address(each)) for each in decode(Leader, detail.value).addresses[:MOST_ADDRESSES]]
            except ValueError:
                return []
    return []
