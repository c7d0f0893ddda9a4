"""From a template's proxy state to the resources of Envoy, as plain functions.

tls          the transport sockets, and the secrets that they name
permissions  the filters that allow and deny
routes       the routing of requests
listeners    the listeners and their filter chains
clusters     the clusters, without the endpoints that are found while the proxy runs
endpoints    the endpoints that are found while the proxy runs
state        all of a proxy state
"""

from mesh.xds.translation.endpoints import Assigned as Assigned
from mesh.xds.translation.endpoints import assign as assign
from mesh.xds.translation.endpoints import joined as joined
from mesh.xds.translation.state import Unfit as Unfit
from mesh.xds.translation.state import translate as translate
from mesh.xds.translation.state import trusted as trusted
from mesh.xds.translation.tls import leaf_name as leaf_name
from mesh.xds.translation.tls import leaf_secret as leaf_secret
from mesh.xds.translation.tls import roots_name as roots_name
from mesh.xds.translation.tls import roots_secret as roots_secret
