"""A peer stream as two state machines, one for each side. They are pure: no Trio, no I/O, no clock.

Read `_rules.py` first, then `_sender.py` with `_sending.py`, and `_receiver.py` with `_receiving.py`.
`_admitting.py` decides which states can be stored, `_copies.py` keeps the copies equal to their originals, and
`_schemas.py` compares the types of both sides.
"""

from headway.peering.stream._copies import Change as Change
from headway.peering.stream._copies import Copies as Copies
from headway.peering.stream._receiver import Receiver as Receiver
from headway.peering.stream._receiving import COMMIT as COMMIT
from headway.peering.stream._receiving import Copying as Copying
from headway.peering.stream._receiving import Work as Work
from headway.peering.stream._receiving import commits as commits
from headway.peering.stream._rules import HEARTBEAT as HEARTBEAT
from headway.peering.stream._rules import SILENCE as SILENCE
from headway.peering.stream._rules import Breach as Breach
from headway.peering.stream._rules import Exported as Exported
from headway.peering.stream._rules import PeerLimits as PeerLimits
from headway.peering.stream._rules import copy_of as copy_of
from headway.peering.stream._rules import doubling as doubling
from headway.peering.stream._rules import exports_of as exports_of
from headway.peering.stream._rules import spend as spend
from headway.peering.stream._schemas import Schemas as Schemas
from headway.peering.stream._sender import Sender as Sender
from headway.peering.stream._sending import Feed as Feed
from headway.peering.stream._sending import cut as cut
from headway.peering.stream._sending import sized as sized
