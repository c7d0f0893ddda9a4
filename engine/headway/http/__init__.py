"""Resources over HTTP, as JSON: the same service as over gRPC, with the same access rules, limits and validation.

    async with open_http("127.0.0.1:8080", offered) as address: ...

No rule of the service exists here a second time. A request becomes the message that gRPC would have received, and goes
to the same handler; the reply becomes JSON. `_server.py` accepts connections for any application, also for the pages of
`observe`. To read the code, start with `_app.py`, then `_call.py`.
"""

from typing import TYPE_CHECKING

from headway._imported_later import imported_later
from headway.http._address import check_http_address as check_http_address
from headway.http._address import host_and_port as host_and_port
from headway.http._address import names_loopback as names_loopback
from headway.http._bounds import Bounds as Bounds
from headway.http._bounds import RequestLimits as RequestLimits
from headway.http._hypercorn import check_hypercorn as check_hypercorn
from headway.http._refusal import HttpRefusal as HttpRefusal
from headway.http._refusal import invalid as invalid

if TYPE_CHECKING:
    from headway.http._answer import HEADERS as HEADERS
    from headway.http._answer import answer as answer
    from headway.http._answer import refused as refused
    from headway.http._app import Endpoint as Endpoint
    from headway.http._app import Further as Further
    from headway.http._app import Verb as Verb
    from headway.http._app import open_http as open_http
    from headway.http._bounds import Shares as Shares
    from headway.http._call import ServedCall as ServedCall
    from headway.http._call import resources_in as resources_in
    from headway.http._document import json_bytes as json_bytes
    from headway.http._document import json_steps as json_steps
    from headway.http._document import object_of as object_of
    from headway.http._document import resource_steps as resource_steps
    from headway.http._offered import Exchange as Exchange
    from headway.http._offered import Offered as Offered
    from headway.http._query import Query as Query
    from headway.http._server import HttpServer as HttpServer
    from headway.http._server import listener as listener
    from headway.http._server import listening_at as listening_at
    from headway.http._verbs import delete as delete
    from headway.http._verbs import patch as patch
    from headway.http._verbs import put as put
    from headway.http._watch import until_disconnected as until_disconnected

# Imported on first use: most programs serve no HTTP, and the libraries are extras.
_LATER = {
    "_answer": "HEADERS answer refused",
    "_app": "Endpoint Further Verb open_http",
    "_bounds": "Shares",
    "_call": "ServedCall resources_in",
    "_document": "json_bytes json_steps object_of resource_steps",
    "_offered": "Exchange Offered",
    "_query": "Query",
    "_server": "HttpServer listener listening_at",
    "_verbs": "delete patch put",
    "_watch": "until_disconnected",
}

__getattr__ = imported_later(__name__, _LATER)
