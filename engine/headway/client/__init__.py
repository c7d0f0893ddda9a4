"""The client: typed resources over any channel.

Whatever a client returns belongs to the caller, who may modify it (C9). Whatever a caller passes in is copied before it
is sent. To read the code, start with `_client.py`.
"""

from headway.client._client import Client as Client
from headway.client._create_apply import keep_stored as keep_stored
from headway.client._create_apply import merge_and_compare as merge_and_compare
from headway.client._events import EventWrite as EventWrite
from headway.client._events import events_of as events_of
from headway.client._hold import HeldLease as HeldLease
from headway.client._hold import LeaseTerm as LeaseTerm
from headway.client._hold import hold_lease as hold_lease
from headway.client._lease import LeaseAnswer as LeaseAnswer
from headway.client._lease import LeaseClient as LeaseClient
from headway.client._lease import LeaseInfo as LeaseInfo
from headway.client._lease import RunFence as RunFence
from headway.client._refusals import LASTING as LASTING
from headway.client._refusals import client_error as client_error
from headway.client._scoped_stream import ConfirmedItems as ConfirmedItems
from headway.client._scoped_stream import open_watch_list as open_watch_list
from headway.client._service_call import call_service as call_service
from headway.client._subjects import Subject as Subject
from headway.client._until import has_condition as has_condition
from headway.client._until import until as until
from headway.client._until import until_condition as until_condition
from headway.client._until import until_gone as until_gone
from headway.client._watch import Deleted as Deleted
from headway.client._watch import Progress as Progress
from headway.client._watch import SnapshotEnd as SnapshotEnd
from headway.client._watch import Upserted as Upserted
from headway.client._watch import WatchStream as WatchStream
from headway.client._watch import second_reader as second_reader
from headway.client._writes import Acknowledged as Acknowledged
from headway.client._writes import Allow as Allow
from headway.client._writes import Writes as Writes
