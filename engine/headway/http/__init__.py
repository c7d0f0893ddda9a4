"""Resources over HTTP, as JSON: the same service as over gRPC, with the same access rules, limits and validation.

    async with open_http("127.0.0.1:8080", offered) as address: ...

No rule of the service exists here a second time. A request becomes the message that gRPC would have received, and goes
to the same handler; the reply becomes JSON. `_server.py` accepts connections for any application, also for the pages of
`observe`. To read the code, start with `_app.py`, then `_call.py`.
"""

from typing import TYPE_CHECKING

from headway.base import imported_later
from headway.http._address import check_http_address as check_http_address
from headway.http._address import host_and_port as host_and_port
from headway.http._bounds import Bounds as Bounds
from headway.http._bounds import RequestLimits as RequestLimits
from headway.http._hypercorn import check_hypercorn as check_hypercorn

if TYPE_CHECKING:
    from headway.http._listening import open_http as open_http
    from headway.http._offered import Offered as Offered
    from headway.http._server import HttpServer as HttpServer
    from headway.http._server import listener as listener
    from headway.http._server import listening_at as listening_at

# Imported on first use: most programs serve no HTTP, and the libraries are extras.
_LATER = {
    "HttpServer": "_server",
    "Offered": "_offered",
    "listener": "_server",
    "listening_at": "_server",
    "open_http": "_listening",
}

__getattr__ = imported_later(__name__, _LATER)
