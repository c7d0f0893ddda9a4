"""The data model: types and their registry, ids, tenancy, resources and their payloads.

Nothing here waits, reads a clock or does I/O. Start reading at `_types.py`, then `_resource.py`.
"""

from typing import TYPE_CHECKING, Any

from headway._gen.google.protobuf import Any as _Any
from headway._gen.headway.resource import v1 as _v1
from headway._gen.headway.resource.v1 import Condition as Condition
from headway._gen.headway.resource.v1 import ConditionState as ConditionState
from headway._gen.headway.resource.v1 import Reference as Reference
from headway._gen.headway.resource.v1 import Status as Status
from headway._gen.headway.resource.v1 import Tombstone as Tombstone
from headway._gen.headway.tenancy.v1 import Namespace as Namespace
from headway._gen.headway.tenancy.v1 import Partition as Partition
from headway._gen.headway.types import v1 as _types_v1
from headway.resource._builtin import NAMESPACE as NAMESPACE
from headway.resource._builtin import PARTITION as PARTITION
from headway.resource._builtin import TOMBSTONE as TOMBSTONE
from headway.resource._builtin import is_builtin as is_builtin
from headway.resource._columns import Columns as Columns
from headway.resource._columns import column_text as column_text
from headway.resource._columns import readable_time as readable_time
from headway.resource._creation import new_create_token as new_create_token
from headway.resource._creation import uid_ending as uid_ending
from headway.resource._describe import describe as describe
from headway.resource._field_count import check_field_count as check_field_count
from headway.resource._ids import Key as Key
from headway.resource._ids import Kind as Kind
from headway.resource._ids import ResourceId as ResourceId
from headway.resource._ids import TypeName as TypeName
from headway.resource._ids import resource_id as resource_id
from headway.resource._ids import resource_key as resource_key
from headway.resource._ids import same_owner as same_owner
from headway.resource._ids import type_name as type_name
from headway.resource._markers import DELETION_TIMESTAMP as DELETION_TIMESTAMP
from headway.resource._markers import FINALIZERS as FINALIZERS
from headway.resource._markers import finalizers as finalizers
from headway.resource._markers import is_marked as is_marked
from headway.resource._markers import set_finalizers as set_finalizers
from headway.resource._merge import different_fields as different_fields
from headway.resource._merge import has_unknown_fields as has_unknown_fields
from headway.resource._merge import merged as merged
from headway.resource._merge import merges as merges
from headway.resource._message import field as field
from headway.resource._message import message as message
from headway.resource._names import MAX_NAME as MAX_NAME
from headway.resource._names import did_you_mean as did_you_mean
from headway.resource._names import name_problem as name_problem
from headway.resource._names import quoted as quoted
from headway.resource._names import type_problem as type_problem
from headway.resource._payload import Payload as Payload
from headway.resource._payload import copy_message as copy_message
from headway.resource._payload import decode as decode
from headway.resource._payload import decoder_of as decoder_of
from headway.resource._payload import encode as encode
from headway.resource._payload import equal as equal
from headway.resource._payload import payload_problem as payload_problem
from headway.resource._payload_plan import FieldPlan as FieldPlan
from headway.resource._payload_plan import UnsupportedClassError as UnsupportedClassError
from headway.resource._payload_plan import Value as Value
from headway.resource._payload_plan import plan_class as plan_class
from headway.resource._rebuild import rebuild as rebuild
from headway.resource._registry import Registry as Registry
from headway.resource._resource import Resource as Resource
from headway.resource._schema_compare import compare_schemas as compare_schemas
from headway.resource._schema_compare import scope_problem as scope_problem
from headway.resource._schema_merge import merge_schemas as merge_schemas
from headway.resource._schema_merge import schema_digest as schema_digest
from headway.resource._stored import Stored as Stored
from headway.resource._stored import shared_message as shared_message
from headway.resource._stream import ANY_VERSIONS as ANY_VERSIONS
from headway.resource._stream import Bookmark as Bookmark
from headway.resource._stream import Change as Change
from headway.resource._stream import Changes as Changes
from headway.resource._stream import EndOfSnapshot as EndOfSnapshot
from headway.resource._stream import Position as Position
from headway.resource._stream import SnapshotChunk as SnapshotChunk
from headway.resource._stream import StreamItem as StreamItem
from headway.resource._stream import position as position
from headway.resource._tenancy import DEFAULT_TENANCY as DEFAULT_TENANCY
from headway.resource._tenancy import Scope as Scope
from headway.resource._tenancy import tenancy_within as tenancy_within
from headway.resource._types import Hooks as Hooks
from headway.resource._types import ResourceType as ResourceType
from headway.resource._unconverted import is_unconverted as is_unconverted
from headway.resource._unconverted import unconverted as unconverted
from headway.resource._units import DEFAULT_UNIT as DEFAULT_UNIT
from headway.resource._units import EMPTIED_FINALIZER as EMPTIED_FINALIZER
from headway.resource._versions import BadConversion as BadConversion
from headway.resource._versions import VersionChain as VersionChain
from headway.resource._versions import in_version as in_version
from headway.resource._versions import packed as packed

AnyMessage = _Any
pb = _v1
types_pb = _types_v1

if TYPE_CHECKING:
    from headway.resource._payload_files import payload_files as payload_files


def __getattr__(name: str) -> Any:
    # Imported on first use, to keep `import headway` light: only a server that describes its types needs it.
    if name != "payload_files":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headway.resource._payload_files import payload_files

    return payload_files
