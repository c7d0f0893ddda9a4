"""The services over a store: of resources, leases, types and the store itself.

Each verb has a file. Nothing here knows how a request arrived or who reads the answer. Open `_service.py` first.

A service owns the requests that are passed to it: it completes them in place and keeps parts of them. Its responses
share objects with the store and must not be changed. In-process channels make copies for that reason.
"""

from headway.service._access import AccessChecks as AccessChecks
from headway.service._access import Decision as Decision
from headway.service._access import Permissions as Permissions
from headway.service._access import WriteRules as WriteRules
from headway.service._access import ask as ask
from headway.service._admission import admit_id as admit_id
from headway.service._admission import hooked as hooked
from headway.service._admission import resolve as resolve
from headway.service._announced import admit_announced as admit_announced
from headway.service._announced import announced_in as announced_in
from headway.service._bounds import check_metadata as check_metadata
from headway.service._bounds import check_payload as check_payload
from headway.service._bounds import check_text as check_text
from headway.service._consul import CONSUL_SERVICE as CONSUL_SERVICE
from headway.service._consul import ConsulService as ConsulService
from headway.service._consul import watch_encoders as watch_encoders
from headway.service._context import Context as Context
from headway.service._deletion import tombstone_of as tombstone_of
from headway.service._encodings import ResourceEncodings as ResourceEncodings
from headway.service._forms import Form as Form
from headway.service._forms import Forms as Forms
from headway.service._forms import Ready as Ready
from headway.service._forms import Update as Update
from headway.service._forms import is_stored_as as is_stored_as
from headway.service._lease import LeaseService as LeaseService
from headway.service._lease import LeaseWaits as LeaseWaits
from headway.service._list import admit_within as admit_within
from headway.service._pages import PageTokens as PageTokens
from headway.service._position import POSITION as POSITION
from headway.service._position import PositionRequest as PositionRequest
from headway.service._position import StoreService as StoreService
from headway.service._position import check_position as check_position
from headway.service._position import current_position as current_position
from headway.service._reader import Reader as Reader
from headway.service._refusals import authorizer_failed as authorizer_failed
from headway.service._service import RESOURCE_SERVICE as RESOURCE_SERVICE
from headway.service._service import WATCH_LIST as WATCH_LIST
from headway.service._service import ResourceService as ResourceService
from headway.service._sizes import memory_size as memory_size
from headway.service._spaced_bookmarks import SpacedBookmarks as SpacedBookmarks
from headway.service._status_bounds import check_statuses as check_statuses
from headway.service._types import TYPES as TYPES
from headway.service._types import DescribedPayloads as DescribedPayloads
from headway.service._types import DescribedTypes as DescribedTypes
from headway.service._types import TypesRequest as TypesRequest
from headway.service._types import TypesService as TypesService
from headway.service._types import unregistered as unregistered
from headway.service._watch_wire import WatchDecoder as WatchDecoder
from headway.service._watch_wire import WatchEncoder as WatchEncoder
from headway.service._watch_wire import event_content as event_content
from headway.service._watch_wire import read_varint as read_varint
