"""The graph of controllers and types: its cycles, Mermaid, and its layout as characters and as an image.

Nothing here affects what the engine does. Start with `_graph.py`; `_layers.py` has the layout.
"""

from headway.graphs._graph import Cycle as Cycle
from headway.graphs._graph import Edge as Edge
from headway.graphs._graph import Graph as Graph
from headway.graphs._graph import Step as Step
from headway.graphs._graph import graph as graph
from headway.graphs._layers import Bend as Bend
from headway.graphs._layers import layered as layered
from headway.graphs._placed import Placed as Placed
from headway.graphs._placed import Sizes as Sizes
from headway.graphs._placed import placed as placed
