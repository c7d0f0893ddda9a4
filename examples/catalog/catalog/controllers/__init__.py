"""The controllers of the app. Importing a module adds its controller, so each has a line here."""

from catalog.controllers import endpoints as endpoints
from catalog.controllers import exported_services as exported_services
from catalog.controllers import failover as failover
from catalog.controllers import node_health as node_health
from catalog.controllers import registrars as registrars
from catalog.controllers import traffic_permissions as traffic_permissions
from catalog.controllers import workload_health as workload_health
