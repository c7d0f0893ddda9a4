"""The app. The modules of types and controllers add to it."""

import headway
from catalog.types import COMPUTED_FAILOVER_POLICY, SERVICE, WORKLOAD

app = headway.App("mesh")
"""The app. It runs beside the catalog's: ``headway serve catalog:app mesh:app``."""

# The types of the catalog that controllers watch.
for _type in (SERVICE, COMPUTED_FAILOVER_POLICY, WORKLOAD):
    app.add_type(_type)
