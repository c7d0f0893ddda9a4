"""Peer streams over the network: the dialer, the service that accepts streams, and the importer that stores copies.

Read `_controller.py` first, then `_dialer.py` and `_service.py` (both ends) and `_link.py` (the stream).
"""

from headway.peering.links._conditions import NOTIFIED as NOTIFIED
from headway.peering.links._controller import add_peer_streams as add_peer_streams
from headway.peering.links._dialer import RARELY as RARELY
from headway.peering.links._dialer import Dialer as Dialer
from headway.peering.links._dialer import decoder as decoder
from headway.peering.links._importing import STATE_KIND as STATE_KIND
from headway.peering.links._importing import Importer as Importer
from headway.peering.links._importing import forget_imports as forget_imports
from headway.peering.links._importing import open_importer as open_importer
from headway.peering.links._leader import leader_in as leader_in
from headway.peering.links._leader import publish_leader as publish_leader
from headway.peering.links._link import TOLD as TOLD
from headway.peering.links._link import Link as Link
from headway.peering.links._service import MOST_UNKNOWN as MOST_UNKNOWN
from headway.peering.links._service import OPEN_TIMEOUT as OPEN_TIMEOUT
from headway.peering.links._service import PEER_STREAM as PEER_STREAM
from headway.peering.links._service import PeerStreamService as PeerStreamService
