"""The beginning of a service mesh on Headway: Consul's types for routes and proxies, as an app beside the catalog.

messages      the messages, with Consul's names and numbers
checks        the validation and the defaults of each type
types         the types
routing       the routing of a service, as plain functions
proxies       the template of a proxy, as plain functions
explicit      the destinations of a workload, as plain functions
controllers   one controller a module
certificates  roots, and a certificate for each identity
"""

from mesh import controllers as controllers
from mesh import types as types
from mesh.application import app as app
