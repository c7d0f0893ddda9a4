"""Headway: a controller engine on Trio.

The packages, in the order that a change passes through them. Each imports only those above it:

    errors, events   the exceptions, and the events that are reported
    base             what every layer uses: checks of declarations, texts and groups of exceptions, reports
    protobuf         message classes: declaring, encoding, copying, comparing
    resource         types, ids and resources
    rpc              channels, for calling services
    storage          stores, with their history and fences
    subscription     what a subscription delivers: whole commits of several types, and topics of programs
    service          the services in front of a store
    client           typed calls over any channel
    cache            the resources of each type, as one watch delivers them, indexes, reads
    mapper, queue    the resources that a change affects; the key that is reconciled next
    reconcile        the reconcile context, requests and results
    controller       declaring controllers
    informers        the watches that fill the caches
    run              running controllers
    builtin          controllers that every engine runs
    engine           `open_engine`, `open_workers`, `open_cache` and `connect`, which assemble all the others
    graphs           the graph of controllers, and its drawings
    fields           owners of fields, which several writers of a resource share
    sharding         a placement that spreads the keys over several processes
    steps            effects outside that must not be repeated, with their intentions and results
    pauses           an operator stops a controller, and lets it go on
    documents        parsing YAML, JSON and HCL into values with their places
    subscribing      subscriptions: the service, and the client's side
    access           access control: tokens and policies
    notify           caches for programs without controllers, and notifications
    manifest         conversion between YAML documents and resources
    http             resources over HTTP
    observe          logs, metrics, health
    tracing          spans of OpenTelemetry, if a program has set up tracing
    peering          copies between engines with stores of their own
    why              the answers to why a resource is not done, and what is stuck
    page             the live page
    testing          helpers for users' tests
    cli              the command line

Names that are not re-exported here or in a package's own `__init__` are private.
"""

from typing import TYPE_CHECKING

from headway._imported_later import imported_later as _imported_later

if TYPE_CHECKING:
    from headway import access as access
    from headway import api as api
    from headway import cache as cache
    from headway import client as client
    from headway import controller as controller
    from headway import engine as engine
    from headway import errors as errors
    from headway import events as events
    from headway import indexes as indexes
    from headway import journal as journal
    from headway import mapper as mapper
    from headway import mappers as mappers
    from headway import notify as notify
    from headway import predicates as predicates
    from headway import protobuf as protobuf
    from headway import queue as queue
    from headway import reconcile as reconcile
    from headway import resource as resource
    from headway import rpc as rpc
    from headway import run as run
    from headway import service as service
    from headway import sharding as sharding
    from headway import sources as sources
    from headway import storage as storage
    from headway import subscribing as subscribing
    from headway import subscription as subscription
    from headway.cache import CacheReader as CacheReader
    from headway.cache import Projected as Projected
    from headway.cache import Projection as Projection
    from headway.cache import Query as Query
    from headway.cache import View as View
    from headway.cache import projection as projection
    from headway.cache import query as query
    from headway.client import Client as Client
    from headway.client import HeldLease as HeldLease
    from headway.client import Subject as Subject
    from headway.client import hold_lease as hold_lease
    from headway.client import until as until
    from headway.client import until_condition as until_condition
    from headway.client import until_gone as until_gone
    from headway.controller import App as App
    from headway.controller import WriteLimit as WriteLimit
    from headway.engine import Engine as Engine
    from headway.engine import Network as Network
    from headway.engine import Timing as Timing
    from headway.engine import connect as connect
    from headway.engine import open_cache as open_cache
    from headway.engine import open_engine as open_engine
    from headway.engine import open_workers as open_workers
    from headway.errors import Conflict as Conflict
    from headway.errors import HeadwayError as HeadwayError
    from headway.errors import NotFound as NotFound
    from headway.errors import PermanentFailure as PermanentFailure
    from headway.graphs import graph as graph
    from headway.mapper import Watch as Watch
    from headway.mapper import watch as watch
    from headway.protobuf import field as field
    from headway.protobuf import message as message
    from headway.queue import Backoff as Backoff
    from headway.reconcile import Conditions as Conditions
    from headway.reconcile import Finalizer as Finalizer
    from headway.reconcile import Outputs as Outputs
    from headway.reconcile import Reason as Reason
    from headway.reconcile import Request as Request
    from headway.reconcile import RequeueAfter as RequeueAfter
    from headway.reconcile import Runtime as Runtime
    from headway.reconcile import requeue_after as requeue_after
    from headway.reconcile import requeue_now as requeue_now
    from headway.resource import NAMESPACE as NAMESPACE
    from headway.resource import PARTITION as PARTITION
    from headway.resource import Condition as Condition
    from headway.resource import ConditionState as ConditionState
    from headway.resource import Hooks as Hooks
    from headway.resource import Need as Need
    from headway.resource import Position as Position
    from headway.resource import Reference as Reference
    from headway.resource import Resource as Resource
    from headway.resource import ResourceId as ResourceId
    from headway.resource import ResourceType as ResourceType
    from headway.resource import Scope as Scope
    from headway.resource import ScopedType as ScopedType
    from headway.resource import Status as Status
    from headway.sharding import sharded as sharded
    from headway.subscription import Topic as Topic

# Each name is imported at its first use. So a program loads what it uses, and the command line starts fast.
_LATER = {
    "": (
        "access api cache client controller engine errors events indexes journal mapper mappers notify "
        "predicates protobuf queue reconcile resource rpc run service sharding sources storage subscribing "
        "subscription"
    ),
    "cache": "CacheReader Projected Projection Query View projection query",
    "client": "Client HeldLease Subject hold_lease until until_condition until_gone",
    "controller": "App WriteLimit",
    "engine": "Engine Network Timing connect open_cache open_engine open_workers",
    "errors": "Conflict HeadwayError NotFound PermanentFailure",
    "graphs": "graph",
    "mapper": "Watch watch",
    "protobuf": "field message",
    "queue": "Backoff",
    "reconcile": "Conditions Finalizer Outputs Reason Request RequeueAfter Runtime requeue_after requeue_now",
    "resource": (
        "Condition ConditionState Hooks NAMESPACE Need PARTITION Position Reference Resource ResourceId "
        "ResourceType Scope ScopedType Status"
    ),
    "sharding": "sharded",
    "subscription": "Topic",
}
__getattr__ = _imported_later(__name__, _LATER)
_NAMES = sorted(name for names in _LATER.values() for name in names.split())
# For `import *`. Type checkers read the imports above.
globals()["__all__"] = _NAMES


def __dir__() -> list[str]:
    """Return all names, with those that are imported at their first use."""
    return sorted({*globals(), *_NAMES} - {"TYPE_CHECKING"})
