"""Headway: a controller engine on Trio.

General layout, in the order in which a change travels; each room imports only those before it:

    errors, events   what can go wrong, and what can be reported
    resource         the nouns: types, ids, resources
    rpc              channels: how services are called
    storage          what is true: stores, their history, their fences
    service          what may be asked
    access           who may ask: tokens and policies
    client           the seam: typed calls over any channel
    watch            one stream of one type, kept up
    cache            what is believed: the gate, indexes, reads
    mapper, queue    whose concern; which key, when
    controller       declaring a controller, and running it
    builtin          controllers that every engine runs
    manifest         YAML documents to resources and back
    observe          what users see of it: logs, metrics, health
    engine           `open_engine`, the only file that knows every room
    workers          `open_workers`: controllers in further processes
    testing          what users' tests need
    cli              the command line

Everything here is a re-export; what isn't re-exported here or in a room's own `__init__` is private.
"""

from headway.cache import Cache as Cache
from headway.cache import CacheReader as CacheReader
from headway.cache import Index as Index
from headway.cache import Projected as Projected
from headway.cache import Projection as Projection
from headway.cache import Query as Query
from headway.cache import View as View
from headway.cache import index as index
from headway.cache import index_bound_references as index_bound_references
from headway.cache import index_many as index_many
from headway.cache import index_metadata as index_metadata
from headway.cache import index_owner as index_owner
from headway.cache import index_reference as index_reference
from headway.cache import index_references as index_references
from headway.cache import projection as projection
from headway.cache import query as query
from headway.client import Client as Client
from headway.client import Deleted as Deleted
from headway.client import HeldLease as HeldLease
from headway.client import Progress as Progress
from headway.client import SnapshotEnd as SnapshotEnd
from headway.client import Upserted as Upserted
from headway.client import hold_lease as hold_lease
from headway.client import until as until
from headway.client import until_condition as until_condition
from headway.client import until_gone as until_gone
from headway.connection import connect as connect
from headway.controller import App as App
from headway.controller import Conditions as Conditions
from headway.controller import ControllerStatus as ControllerStatus
from headway.controller import Enqueue as Enqueue
from headway.controller import Finalizer as Finalizer
from headway.controller import Graph as Graph
from headway.controller import NotDone as NotDone
from headway.controller import Outputs as Outputs
from headway.controller import OwnWrite as OwnWrite
from headway.controller import ProcessExits as ProcessExits
from headway.controller import Reason as Reason
from headway.controller import Request as Request
from headway.controller import RequeueAfter as RequeueAfter
from headway.controller import Runtime as Runtime
from headway.controller import Source as Source
from headway.controller import StrongReads as StrongReads
from headway.controller import TypeStatus as TypeStatus
from headway.controller import every as every
from headway.controller import from_channel as from_channel
from headway.controller import from_iterator as from_iterator
from headway.controller import graph as graph
from headway.controller import process_exits as process_exits
from headway.controller import requeue_after as requeue_after
from headway.controller import requeue_now as requeue_now
from headway.controller import sharded as sharded
from headway.engine import Engine as Engine
from headway.engine import open_engine as open_engine
from headway.errors import AlreadyExists as AlreadyExists
from headway.errors import CallerError as CallerError
from headway.errors import Closed as Closed
from headway.errors import Conflict as Conflict
from headway.errors import ConversionFailed as ConversionFailed
from headway.errors import DeclarationError as DeclarationError
from headway.errors import EngineBug as EngineBug
from headway.errors import FailedPrecondition as FailedPrecondition
from headway.errors import Fenced as Fenced
from headway.errors import HeadwayError as HeadwayError
from headway.errors import HistoryGone as HistoryGone
from headway.errors import IndexIncomplete as IndexIncomplete
from headway.errors import InvalidArgument as InvalidArgument
from headway.errors import IsolationBroken as IsolationBroken
from headway.errors import LeaseLost as LeaseLost
from headway.errors import NonsenseResult as NonsenseResult
from headway.errors import NotDeclared as NotDeclared
from headway.errors import NotFound as NotFound
from headway.errors import NotHeadway as NotHeadway
from headway.errors import NotOnTrio as NotOnTrio
from headway.errors import NotPrimed as NotPrimed
from headway.errors import NotStored as NotStored
from headway.errors import NotWatched as NotWatched
from headway.errors import OutcomeUnknown as OutcomeUnknown
from headway.errors import PayloadError as PayloadError
from headway.errors import PermanentFailure as PermanentFailure
from headway.errors import PermissionDenied as PermissionDenied
from headway.errors import PrimingStalled as PrimingStalled
from headway.errors import ReconcileTimeout as ReconcileTimeout
from headway.errors import RemoteError as RemoteError
from headway.errors import SchemaMismatch as SchemaMismatch
from headway.errors import SchemaProblem as SchemaProblem
from headway.errors import StoreChanged as StoreChanged
from headway.errors import StoreUnusable as StoreUnusable
from headway.errors import StoreWentBack as StoreWentBack
from headway.errors import StrayCancelled as StrayCancelled
from headway.errors import TooLarge as TooLarge
from headway.errors import Unavailable as Unavailable
from headway.errors import UnknownTerm as UnknownTerm
from headway.mapper import ChangeMapper as ChangeMapper
from headway.mapper import Mapper as Mapper
from headway.mapper import Predicate as Predicate
from headway.mapper import Watch as Watch
from headway.mapper import all_of as all_of
from headway.mapper import any_of as any_of
from headway.mapper import content_changed as content_changed
from headway.mapper import data_changed as data_changed
from headway.mapper import deletion_begun as deletion_begun
from headway.mapper import map_change as map_change
from headway.mapper import map_index as map_index
from headway.mapper import map_index_parents as map_index_parents
from headway.mapper import map_index_prefix as map_index_prefix
from headway.mapper import map_owned as map_owned
from headway.mapper import map_owner as map_owner
from headway.mapper import map_reference as map_reference
from headway.mapper import map_references as map_references
from headway.mapper import map_same_name as map_same_name
from headway.mapper import map_self as map_self
from headway.mapper import map_through as map_through
from headway.mapper import map_union as map_union
from headway.mapper import metadata_changed as metadata_changed
from headway.mapper import none_of as none_of
from headway.mapper import not_own_writes as not_own_writes
from headway.mapper import only_if as only_if
from headway.mapper import status_changed as status_changed
from headway.mapper import watch as watch
from headway.queue import Backoff as Backoff
from headway.resource import NAMESPACE as NAMESPACE
from headway.resource import PARTITION as PARTITION
from headway.resource import Condition as Condition
from headway.resource import ConditionState as ConditionState
from headway.resource import Hooks as Hooks
from headway.resource import Position as Position
from headway.resource import Reference as Reference
from headway.resource import Resource as Resource
from headway.resource import ResourceId as ResourceId
from headway.resource import ResourceType as ResourceType
from headway.resource import Scope as Scope
from headway.resource import Status as Status
from headway.resource import field as field
from headway.resource import message as message
from headway.workers import open_workers as open_workers
