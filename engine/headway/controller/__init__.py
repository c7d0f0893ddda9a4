"""Declaring controllers: apps, their types and controllers, daemons, timers and sources, and the graph of them.

Start with `_app.py`. Nothing here runs a controller: `headway.run` does.
"""

from typing import TYPE_CHECKING

from headway.base import imported_later
from headway.controller._added import MOST_ADDED as MOST_ADDED
from headway.controller._added import GrowingDefinition as GrowingDefinition
from headway.controller._app import App as App
from headway.controller._app import sealed as sealed
from headway.controller._daemons import Daemons as Daemons
from headway.controller._definition import Definition as Definition
from headway.controller._definition import Enqueue as Enqueue
from headway.controller._definition import GivenControllerOptions as GivenControllerOptions
from headway.controller._definition import Options as Options
from headway.controller._definition import Placement as Placement
from headway.controller._definition import Reconciler as Reconciler
from headway.controller._definition import Sharded as Sharded
from headway.controller._definition import Source as Source
from headway.controller._definition import sharded as sharded
from headway.controller._graph import Cycle as Cycle
from headway.controller._graph import Edge as Edge
from headway.controller._graph import Graph as Graph
from headway.controller._graph import Step as Step
from headway.controller._graph import graph as graph
from headway.controller._sources import ProcessExits as ProcessExits
from headway.controller._sources import every as every
from headway.controller._sources import from_channel as from_channel
from headway.controller._sources import from_iterator as from_iterator
from headway.controller._sources import process_exits as process_exits
from headway.controller._write_limit import WriteLimit as WriteLimit

if TYPE_CHECKING:
    from headway.controller._layers import Bend as Bend
    from headway.controller._layers import layered as layered
    from headway.controller._placed import Placed as Placed
    from headway.controller._placed import Sizes as Sizes
    from headway.controller._placed import placed as placed

# Imported on first use: only a drawing of the graph needs them.
__getattr__ = imported_later(__name__, {"_layers": "Bend layered", "_placed": "Placed Sizes placed"})
