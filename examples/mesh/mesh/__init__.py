"""The beginning of a service mesh on Headway: Consul's types for routes and proxies, as an app beside the catalog.

messages      the messages, with Consul's names and numbers
checks        the validation and the defaults of each type
types         the types
"""

from mesh import types as types
from mesh.application import app as app
