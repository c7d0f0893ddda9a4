"""Declare controllers and run them.

Start with `_app.py` (the declarations), then read `_run.py` (the course of a run) and `_supervisor.py` (its restarts).
"""

from headway.controller._app import App as App
from headway.controller._app import sealed as sealed
from headway.controller._conditions import Conditions as Conditions
from headway.controller._definition import Definition as Definition
from headway.controller._definition import Enqueue as Enqueue
from headway.controller._definition import Source as Source
from headway.controller._finalizer import Finalizer as Finalizer
from headway.controller._graph import Cycle as Cycle
from headway.controller._graph import Edge as Edge
from headway.controller._graph import Graph as Graph
from headway.controller._graph import Step as Step
from headway.controller._graph import graph as graph
from headway.controller._leading import LEASE_TTL as LEASE_TTL
from headway.controller._leading import Leading as Leading
from headway.controller._mapping import Owed as Owed
from headway.controller._outputs import Outputs as Outputs
from headway.controller._own_writes import CONTROLLER as CONTROLLER
from headway.controller._own_writes import MAPPING as MAPPING
from headway.controller._own_writes import RECONCILING as RECONCILING
from headway.controller._own_writes import OwnWrite as OwnWrite
from headway.controller._own_writes import reconciling as reconciling
from headway.controller._placement import Placement as Placement
from headway.controller._placement import Sharded as Sharded
from headway.controller._placement import sharded as sharded
from headway.controller._request import Reason as Reason
from headway.controller._request import Request as Request
from headway.controller._request import RequeueAfter as RequeueAfter
from headway.controller._request import Result as Result
from headway.controller._request import requeue_after as requeue_after
from headway.controller._request import requeue_now as requeue_now
from headway.controller._results import NotDone as NotDone
from headway.controller._run import STALL_LIMIT as STALL_LIMIT
from headway.controller._run import Run as Run
from headway.controller._runtime import Runtime as Runtime
from headway.controller._sharded import ShardedRun as ShardedRun
from headway.controller._sources import ProcessExits as ProcessExits
from headway.controller._sources import every as every
from headway.controller._sources import from_channel as from_channel
from headway.controller._sources import from_iterator as from_iterator
from headway.controller._sources import process_exits as process_exits
from headway.controller._status import ControllerStatus as ControllerStatus
from headway.controller._status import Phase as Phase
from headway.controller._status import TypeStatus as TypeStatus
from headway.controller._strong import StrongReads as StrongReads
from headway.controller._supervisor import Supervisor as Supervisor
