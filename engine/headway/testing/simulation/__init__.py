"""Fault injection under virtual time: finds the bugs of a reconciler in seconds.

    def test_accounts() -> None:
        simulation.explore(app, scenario)

Start with `_explore.py`, then read `_world.py`. A module imports only those before it:

    _fault_base, faults, _trace  the faults of a plan; what happened in a run
    _peer_faults                 the faults of peerings
    _oracles, _contents          the mistakes that a single run shows; the fields of its resources
    _times, _slots               the times in results, which differ from run to run; things made once for each time
    _allowed, _compared          the differences between two runs that are allowed; those that are found
    _plans, _schedules           the faults and schedules to try
    _tick_plans, _order          what the program does by its own clock; the order in which plans are tried
    _peer_oracles, _peer_plans   the rules of peerings; the faults of peerings to try
    _always, _late_writes        what must hold at all times; writes when all work is done
    _causes, _excerpt            the entries that findings are about; the part of a trace that is shown
    _blind, _made_again          changes that a write has destroyed; things outside that were made again
    _steady                      reconciles that write something else for no reason
    _report                      what is printed
    _page, _story_file           a story as a page, with the parts in `_page_parts.py`; the file it is written to
    _shrink                      the search for the simplest plan that refutes
    _injector                    when each fault strikes
    _jumping                     Trio's clock, which jumps while no task can run
    _clocks, _virtual_time       the clocks that the program sees
    _own_modules                 gives these clocks to the program's modules
    _wire, _store, _server       what the processes are connected to
    _engines                     further engines on the store of the server
    _link, _process, _streams    the processes, and the faults of their calls and streams
    _waits                       what a program waits for by its own clock
    _peer, _peer_network         the other engine of a peering; the link between the two
    _peerings                    the peerings, their faults and their judgement
    _upgrade                     the programs that replace each other
    _pace, _rival, _free_shards  how fast users are; another writer; shards without a process
    _world, _run                 all of it together; one run from its beginning to its end
    _twins, _late                the demands that a correct program can meet; the right results at a later time
    _reference, _measure         one run without faults; all runs without faults
    _explore, _machine           many runs. Only `_machine.py` imports a test framework.
"""

from typing import TYPE_CHECKING, Any

from headway.testing.simulation._always import Always as Always
from headway.testing.simulation._always import Stored as Stored
from headway.testing.simulation._explore import explore as explore
from headway.testing.simulation._explore import explored as explored
from headway.testing.simulation._explore import same_end as same_end
from headway.testing.simulation._oracles import Finding as Finding
from headway.testing.simulation._oracles import Result as Result
from headway.testing.simulation._peer import Peer as Peer
from headway.testing.simulation._process import Beside as Beside
from headway.testing.simulation._process import MakeApp as MakeApp
from headway.testing.simulation._process import OutsideUnreachable as OutsideUnreachable
from headway.testing.simulation._process import Process as Process
from headway.testing.simulation._reference import Refuted as Refuted
from headway.testing.simulation._report import Explored as Explored
from headway.testing.simulation._run import run as run
from headway.testing.simulation._setting import Setting as Setting
from headway.testing.simulation._trace import Committed as Committed
from headway.testing.simulation._trace import Delivered as Delivered
from headway.testing.simulation._trace import Happened as Happened
from headway.testing.simulation._trace import Reconcile as Reconcile
from headway.testing.simulation._trace import Reconciled as Reconciled
from headway.testing.simulation._trace import Step as Step
from headway.testing.simulation._trace import Trace as Trace
from headway.testing.simulation._world import GivenUp as GivenUp
from headway.testing.simulation._world import Invariant as Invariant
from headway.testing.simulation._world import Scenario as Scenario
from headway.testing.simulation._world import World as World
from headway.testing.simulation.faults import Fault as Fault
from headway.testing.simulation.faults import Plan as Plan

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
