"""The controllers of the app. Importing a module adds its controller, so each has a line here."""

from catalog.controllers import endpoints as endpoints
from catalog.controllers import node_health as node_health
from catalog.controllers import workload_health as workload_health
