"""The reconcile context: what a reconciler is called with, and what it returns.

Start with `_runtime.py`. Nothing here knows how a controller is declared or run.
"""

from headway.reconcile._block import Block as Block
from headway.reconcile._blocks import Conditions as Conditions
from headway.reconcile._blocks import Finalizer as Finalizer
from headway.reconcile._blocks import Outputs as Outputs
from headway.reconcile._events import RecordEvent as RecordEvent
from headway.reconcile._events import ignore_event as ignore_event
from headway.reconcile._gate import Gate as Gate
from headway.reconcile._lifetimes import Lifetimes as Lifetimes
from headway.reconcile._log import key_path as key_path
from headway.reconcile._request import CONTROLLER as CONTROLLER
from headway.reconcile._request import MAPPING as MAPPING
from headway.reconcile._request import RECONCILING as RECONCILING
from headway.reconcile._request import KeyAtWork as KeyAtWork
from headway.reconcile._request import NotDue as NotDue
from headway.reconcile._request import OwnStatuses as OwnStatuses
from headway.reconcile._request import Reason as Reason
from headway.reconcile._request import Reconciling as Reconciling
from headway.reconcile._request import Request as Request
from headway.reconcile._request import RequeueAfter as RequeueAfter
from headway.reconcile._request import Result as Result
from headway.reconcile._request import reconciling as reconciling
from headway.reconcile._request import requeue_after as requeue_after
from headway.reconcile._request import requeue_now as requeue_now
from headway.reconcile._request import trace_id_of as trace_id_of
from headway.reconcile._runtime import STRONG_READ as STRONG_READ
from headway.reconcile._runtime import Declared as Declared
from headway.reconcile._runtime import Fence as Fence
from headway.reconcile._runtime import Runtime as Runtime
from headway.reconcile._runtime import StrongReads as StrongReads
from headway.reconcile._secret_reads import Find as Find
from headway.reconcile._secret_reads import SecretReads as SecretReads
from headway.reconcile._secret_reads import redact_reads as redact_reads
from headway.reconcile._statuses import NewestStatuses as NewestStatuses
