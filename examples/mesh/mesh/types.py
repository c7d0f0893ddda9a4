"""The types of the mesh, with the names and scopes of Consul's."""

from catalog.checks.faults import refusing
from headway import Hooks
from mesh import messages
from mesh.application import app
from mesh.checks import computed, policies, proxies, rights, routes

PROXY_CONFIGURATION = app.type(
    "mesh",
    "v2beta1",
    "ProxyConfiguration",
    messages.ProxyConfiguration,
    hooks=Hooks(validate=refusing(proxies.configuration), needs=rights.selecting),
)
DESTINATIONS = app.type(
    "mesh",
    "v2beta1",
    "Destinations",
    messages.Destinations,
    hooks=Hooks(mutate=proxies.fill_in_destinations, validate=refusing(proxies.destinations), needs=rights.selecting),
)
HTTP_ROUTE = app.type(
    "mesh",
    "v2beta1",
    "HTTPRoute",
    messages.HTTPRoute,
    hooks=Hooks(mutate=routes.fill_in, validate=refusing(routes.http), needs=rights.route),
)
GRPC_ROUTE = app.type(
    "mesh",
    "v2beta1",
    "GRPCRoute",
    messages.GRPCRoute,
    hooks=Hooks(mutate=routes.fill_in, validate=refusing(routes.grpc), needs=rights.route),
)
TCP_ROUTE = app.type(
    "mesh",
    "v2beta1",
    "TCPRoute",
    messages.TCPRoute,
    hooks=Hooks(mutate=routes.fill_in, validate=refusing(routes.tcp), needs=rights.route),
)
# It has the name of its service.
DESTINATION_POLICY = app.type(
    "mesh",
    "v2beta1",
    "DestinationPolicy",
    messages.DestinationPolicy,
    hooks=Hooks(validate=refusing(policies.policy)),
)

# A workload has these under its own name.
COMPUTED_PROXY_CONFIGURATION = app.type(
    "mesh", "v2beta1", "ComputedProxyConfiguration", messages.ComputedProxyConfiguration
)
COMPUTED_EXPLICIT_DESTINATIONS = app.type(
    "mesh", "v2beta1", "ComputedExplicitDestinations", messages.ComputedExplicitDestinations
)
PROXY_STATE_TEMPLATE = app.type(
    "mesh",
    "v2beta1",
    "ProxyStateTemplate",
    messages.ProxyStateTemplate,
    hooks=Hooks(validate=refusing(computed.template), needs=rights.template),
)
# A service has it under its own name.
COMPUTED_ROUTES = app.type(
    "mesh", "v2beta1", "ComputedRoutes", messages.ComputedRoutes, hooks=Hooks(validate=refusing(computed.routes))
)
