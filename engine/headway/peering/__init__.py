"""Peerings. A peering connects two engines with stores of their own, and copies what each exports to the other.

    token = await headway.peering.generate_token(client, "west", exports=[TEAM])       # on one side
    await headway.peering.establish(client, "east", token, exports=[ACCOUNT])          # on the other

Both sides have a resource of type `PEERING`. The copies of peering ``west`` are in partition ``peer-west``, where only
the peering writes.

A token is exchanged once for the secret of the stream between the two. Clients cannot read either secret.
Read `_types.py` first (a peering's state and conditions), then `_secrets.py`, `_service.py` and `_lifecycle.py`.
Streams are in `stream` (state machines) and `links` (tasks and connections).
"""

from headway.peering._client import establish as establish
from headway.peering._client import export as export
from headway.peering._client import generate_token as generate_token
from headway.peering._dial import EXCHANGE as EXCHANGE
from headway.peering._dial import exchange as exchange
from headway.peering._dial import open_peer_channel as open_peer_channel
from headway.peering._extension import PeerLinks as PeerLinks
from headway.peering._extension import peering_app as peering_app
from headway.peering._extension import peering_extension as peering_extension
from headway.peering._host import PeeringHost as PeeringHost
from headway.peering._partition import ensure_partition as ensure_partition
from headway.peering._secrets import SECRETS_KIND as SECRETS_KIND
from headway.peering._secrets import SecretStore as SecretStore
from headway.peering._service import PeeringService as PeeringService
from headway.peering._token import MAX_TOKEN as MAX_TOKEN
from headway.peering._token import PeeringToken as PeeringToken
from headway.peering._token import read_token as read_token
from headway.peering._types import EXCHANGED as EXCHANGED
from headway.peering._types import PEERING as PEERING
from headway.peering._types import PEERING_FINALIZER as PEERING_FINALIZER
from headway.peering._types import STATUS_KEY as STATUS_KEY
from headway.peering._types import STREAM_FINALIZER as STREAM_FINALIZER
from headway.peering._types import STREAM_KEY as STREAM_KEY
from headway.peering._types import Export as Export
from headway.peering._types import Peering as Peering
from headway.peering._types import PeeringState as PeeringState
from headway.peering._types import Role as Role
from headway.peering._types import condition_of as condition_of
from headway.peering._types import copies_partition as copies_partition
from headway.peering._types import peering_of as peering_of
from headway.peering._types import state_of as state_of
from headway.peering._write_rules import MAX_EXPORTS as MAX_EXPORTS
from headway.peering._write_rules import PeeringRules as PeeringRules
from headway.peering.links import NOTIFIED as NOTIFIED
from headway.peering.links import PEER_STREAM as PEER_STREAM
from headway.peering.links import STATE_KIND as STATE_KIND
from headway.peering.links import PeerStreamService as PeerStreamService
from headway.peering.stream import PeerLimits as PeerLimits
