"""The data model: types and their registry, ids, tenancy, resources, and the versions of a kind.

Nothing here waits, reads a clock or does I/O. Start reading at `_types.py`, then `_resource.py`.
"""

from headway._gen.google.protobuf import Any as _Any
from headway._gen.headway.event.v1 import Entry as Entry
from headway._gen.headway.event.v1 import Event as Event
from headway._gen.headway.resource import v1 as _v1
from headway._gen.headway.resource.v1 import Condition as Condition
from headway._gen.headway.resource.v1 import ConditionState as ConditionState
from headway._gen.headway.resource.v1 import Reference as Reference
from headway._gen.headway.resource.v1 import Status as Status
from headway._gen.headway.resource.v1 import Tombstone as Tombstone
from headway._gen.headway.tenancy.v1 import Namespace as Namespace
from headway._gen.headway.tenancy.v1 import Partition as Partition
from headway._gen.headway.types import v1 as _types_v1
from headway.base import did_you_mean as did_you_mean
from headway.resource._builtin_types import NAMESPACE as NAMESPACE
from headway.resource._builtin_types import PARTITION as PARTITION
from headway.resource._builtin_types import TOMBSTONE as TOMBSTONE
from headway.resource._builtin_types import is_builtin as is_builtin
from headway.resource._columns import Columns as Columns
from headway.resource._columns import column_text as column_text
from headway.resource._columns import readable_time as readable_time
from headway.resource._description import DescribedTopic as DescribedTopic
from headway.resource._description import describe as describe
from headway.resource._description import rebuild as rebuild
from headway.resource._event import EVENT as EVENT
from headway.resource._event import MAX_TEXT as MAX_TEXT
from headway.resource._event import MOST_EVENTS as MOST_EVENTS
from headway.resource._event import event_id as event_id
from headway.resource._event import merged_events as merged_events
from headway.resource._event import reason_problem as reason_problem
from headway.resource._ids import DEFAULT_TENANCY as DEFAULT_TENANCY
from headway.resource._ids import MAX_NAME as MAX_NAME
from headway.resource._ids import Key as Key
from headway.resource._ids import Kind as Kind
from headway.resource._ids import ResourceId as ResourceId
from headway.resource._ids import Scope as Scope
from headway.resource._ids import TypeName as TypeName
from headway.resource._ids import name_problem as name_problem
from headway.resource._ids import new_create_token as new_create_token
from headway.resource._ids import quoted as quoted
from headway.resource._ids import resource_id as resource_id
from headway.resource._ids import resource_key as resource_key
from headway.resource._ids import same_owner as same_owner
from headway.resource._ids import tenancy_within as tenancy_within
from headway.resource._ids import type_name as type_name
from headway.resource._ids import type_problem as type_problem
from headway.resource._ids import uid_ending as uid_ending
from headway.resource._pause import PAUSE as PAUSE
from headway.resource._pause import controller_problem as controller_problem
from headway.resource._pause import pause_name as pause_name
from headway.resource._peering import MAX_PEERING_NAME as MAX_PEERING_NAME
from headway.resource._peering import PEERING as PEERING
from headway.resource._peering import PEERING_FINALIZER as PEERING_FINALIZER
from headway.resource._peering import copies_partition as copies_partition
from headway.resource._peering import peering_of as peering_of
from headway.resource._registry import Registry as Registry
from headway.resource._reserved import DELETION_TIMESTAMP as DELETION_TIMESTAMP
from headway.resource._reserved import FINALIZERS as FINALIZERS
from headway.resource._reserved import finalizers as finalizers
from headway.resource._reserved import is_marked as is_marked
from headway.resource._reserved import set_finalizers as set_finalizers
from headway.resource._resource import Resource as Resource
from headway.resource._scoped import ScopedType as ScopedType
from headway.resource._scoped import is_form_of as is_form_of
from headway.resource._stored import Stored as Stored
from headway.resource._stored import shared_message as shared_message
from headway.resource._stream import ANY_VERSIONS as ANY_VERSIONS
from headway.resource._stream import Bookmark as Bookmark
from headway.resource._stream import Change as Change
from headway.resource._stream import Changes as Changes
from headway.resource._stream import EndOfSnapshot as EndOfSnapshot
from headway.resource._stream import Position as Position
from headway.resource._stream import ScopeConfirmed as ScopeConfirmed
from headway.resource._stream import SnapshotChunk as SnapshotChunk
from headway.resource._stream import StreamItem as StreamItem
from headway.resource._stream import position as position
from headway.resource._types import DEFAULT_UNIT as DEFAULT_UNIT
from headway.resource._types import EMPTIED_FINALIZER as EMPTIED_FINALIZER
from headway.resource._types import Hooks as Hooks
from headway.resource._types import ResourceType as ResourceType
from headway.resource._unconverted import is_unconverted as is_unconverted
from headway.resource._unconverted import unconverted as unconverted
from headway.resource._versions import BadConversion as BadConversion
from headway.resource._versions import VersionChain as VersionChain
from headway.resource._versions import in_version as in_version
from headway.resource._versions import packed as packed
from headway.resource._within import Within as Within
from headway.resource._within import selected as selected
from headway.resource._within import selector_problem as selector_problem

AnyMessage = _Any
pb = _v1
types_pb = _types_v1
