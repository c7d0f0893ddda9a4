"""Fault injection under virtual time: finds the bugs of a reconciler in seconds.

    def test_accounts() -> None:
        simulation.explore(app, scenario)

Start with `_explore.py`. A module or a package imports only those before it:

    _fault_base                  the base of all faults, the schedules, and the faults of peerings
    faults, _trace               all faults of a plan; what happened in a run
    oracles                      the checks of runs
    plans, stories               the faults to try; the explanation of a run that failed
    world                        the store, its server and the processes
    _run                         one run, from its beginning to its end
    _twins                       what a correct program can do: runs whose disturbance is moved, and later runs
    _reference, _measure         one run without faults; all runs without faults
    _explore, _machine           many runs. Only `_machine.py` imports a test framework.
"""

from typing import TYPE_CHECKING, Any

from headway.testing.simulation._explore import ExploreSettings as ExploreSettings
from headway.testing.simulation._explore import explore as explore
from headway.testing.simulation._explore import explored as explored
from headway.testing.simulation._explore import same_end as same_end
from headway.testing.simulation._reference import Refuted as Refuted
from headway.testing.simulation._run import run as run
from headway.testing.simulation._trace import Committed as Committed
from headway.testing.simulation._trace import Delivered as Delivered
from headway.testing.simulation._trace import Happened as Happened
from headway.testing.simulation._trace import Reconcile as Reconcile
from headway.testing.simulation._trace import Reconciled as Reconciled
from headway.testing.simulation._trace import Seen as Seen
from headway.testing.simulation._trace import Step as Step
from headway.testing.simulation._trace import Trace as Trace
from headway.testing.simulation.faults import Fault as Fault
from headway.testing.simulation.faults import Plan as Plan
from headway.testing.simulation.oracles import Always as Always
from headway.testing.simulation.oracles import Finding as Finding
from headway.testing.simulation.oracles import Result as Result
from headway.testing.simulation.oracles import Stored as Stored
from headway.testing.simulation.stories import Explored as Explored
from headway.testing.simulation.world import Beside as Beside
from headway.testing.simulation.world import GivenUp as GivenUp
from headway.testing.simulation.world import Invariant as Invariant
from headway.testing.simulation.world import MakeApp as MakeApp
from headway.testing.simulation.world import OutsideUnreachable as OutsideUnreachable
from headway.testing.simulation.world import Peer as Peer
from headway.testing.simulation.world import Process as Process
from headway.testing.simulation.world import Scenario as Scenario
from headway.testing.simulation.world import Setting as Setting
from headway.testing.simulation.world import World as World

if TYPE_CHECKING:
    from headway.testing.simulation._machine import Machine as Machine
    from headway.testing.simulation._machine import chains as chains
    from headway.testing.simulation._machine import desired as desired

_LATER = ("Machine", "chains", "desired")
"""The names that need Hypothesis. They are imported on first use."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"{__name__}._machine"), name)
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        text = f"{__name__}.{name} needs Hypothesis: pip install hypothesis"
        raise ModuleNotFoundError(text, name="hypothesis") from None
