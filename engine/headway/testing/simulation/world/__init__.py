"""The simulated world: a store, its server and the processes on it, under virtual time and the faults of a plan.

Nothing here judges a run. Read `_world.py` first. A module imports only those before it:

    _jumping, _injector       Trio's clock, which jumps while no task can run; when each fault strikes
    _clocks, _own_modules     the clocks of a run, and how the program's modules get them
    _peer_network             the link between the two engines of a peering
    _wire, _store             what the processes are connected to
    _server                   the server, which restarts and restores backups, and further engines on its store
    _readers, _traced_app     what a program has open; its functions, recorded
    _outside_state            the state of the world outside
    _link, _beside, _process  a connection; the functions beside the controllers; a process, and what it waits for
    _streams                  the faults of streams
    _setting                  the program, the scenario, and what to check
    _peerings                 the peerings, their faults and their checks
    _upgrade                  the programs that replace each other
    _pace, _world             how fast users are; all of it together
"""

from headway.testing.simulation.world._clocks import LOOK as LOOK
from headway.testing.simulation.world._injector import Injector as Injector
from headway.testing.simulation.world._jumping import Clock as Clock
from headway.testing.simulation.world._jumping import JumpingClock as JumpingClock
from headway.testing.simulation.world._outside_state import outside_state as outside_state
from headway.testing.simulation.world._own_modules import own_clocks as own_clocks
from headway.testing.simulation.world._pace import DELETED as DELETED
from headway.testing.simulation.world._process import PROCESS as PROCESS
from headway.testing.simulation.world._process import Beside as Beside
from headway.testing.simulation.world._process import MakeApp as MakeApp
from headway.testing.simulation.world._process import OutsideUnreachable as OutsideUnreachable
from headway.testing.simulation.world._process import Process as Process
from headway.testing.simulation.world._process import longest_wait as longest_wait
from headway.testing.simulation.world._server import ANOTHER_WRITER as ANOTHER_WRITER
from headway.testing.simulation.world._setting import Peer as Peer
from headway.testing.simulation.world._setting import Setting as Setting
from headway.testing.simulation.world._traced_app import RECONCILE as RECONCILE
from headway.testing.simulation.world._world import GivenUp as GivenUp
from headway.testing.simulation.world._world import Invariant as Invariant
from headway.testing.simulation.world._world import Rival as Rival
from headway.testing.simulation.world._world import Scenario as Scenario
from headway.testing.simulation.world._world import World as World
