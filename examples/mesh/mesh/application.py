"""The app. The modules of types and controllers add to it."""

import headway
from catalog.types import COMPUTED_FAILOVER_POLICY, COMPUTED_TRAFFIC_PERMISSIONS, SERVICE, SERVICE_ENDPOINTS, WORKLOAD

app = headway.App("mesh")
"""The app. It runs beside the catalog's: ``headway serve catalog:app mesh:app``."""

# The types of the catalog that controllers watch.
for _type in (SERVICE, COMPUTED_FAILOVER_POLICY, WORKLOAD, SERVICE_ENDPOINTS, COMPUTED_TRAFFIC_PERMISSIONS):
    app.add_type(_type)
