"""Make it so: declaring a controller, and running it.

Open `_definition.py` first (what can be said), then `_run.py` (the way of one run), `_supervisor.py` (its restarts).
"""

from headway.controller._definition import App as App
from headway.controller._definition import Definition as Definition
from headway.controller._definition import Enqueue as Enqueue
from headway.controller._definition import Source as Source
from headway.controller._mapping import Owed as Owed
from headway.controller._outputs import Outputs as Outputs
from headway.controller._request import Reason as Reason
from headway.controller._request import Request as Request
from headway.controller._request import RequeueAfter as RequeueAfter
from headway.controller._request import Result as Result
from headway.controller._request import requeue_after as requeue_after
from headway.controller._request import requeue_now as requeue_now
from headway.controller._run import Run as Run
from headway.controller._runtime import Runtime as Runtime
from headway.controller._strong import StrongReads as StrongReads
from headway.controller._supervisor import Supervisor as Supervisor
