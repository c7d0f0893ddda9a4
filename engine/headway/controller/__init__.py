"""Declaring controllers: apps, their types and controllers, daemons, timers and sources.

Start with `_app.py`. Nothing here runs a controller: `headway.run` does.
"""

from headway.controller._added import MOST_ADDED as MOST_ADDED
from headway.controller._added import GrowingDefinition as GrowingDefinition
from headway.controller._app import App as App
from headway.controller._app import sealed as sealed
from headway.controller._daemons import Daemons as Daemons
from headway.controller._definition import Definition as Definition
from headway.controller._definition import Division as Division
from headway.controller._definition import Enqueue as Enqueue
from headway.controller._definition import GivenControllerOptions as GivenControllerOptions
from headway.controller._definition import Options as Options
from headway.controller._definition import Placement as Placement
from headway.controller._definition import Reconciler as Reconciler
from headway.controller._definition import Source as Source
from headway.controller._sources import ProcessExits as ProcessExits
from headway.controller._sources import every as every
from headway.controller._sources import from_channel as from_channel
from headway.controller._sources import from_iterator as from_iterator
from headway.controller._sources import process_exits as process_exits
from headway.controller._write_limit import WriteLimit as WriteLimit
