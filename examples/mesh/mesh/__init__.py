"""A service mesh on Headway: Consul's types for routes and proxies, as an app beside the catalog, for real Envoys.

messages      the messages, with Consul's names and numbers
checks        the validation and the defaults of each type
types         the types
routing       the routing of a service, as plain functions
proxies       the template of a proxy, as plain functions
explicit      the destinations of a workload, as plain functions
controllers   one controller a module
certificates  roots, and a certificate for each identity
xds           the protocol of Envoy, and a server for it
control       the completed templates, for the proxies that are connected
server        a program that serves all of it
demo          a mesh with real Envoys under load, to which everything happens
"""

from mesh import controllers as controllers
from mesh import types as types
from mesh.application import app as app
