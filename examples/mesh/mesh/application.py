"""The app. The modules of types and controllers add to it."""

import headway

app = headway.App("mesh")
"""The app. It runs beside the catalog's: ``headway serve catalog:app mesh:app``."""
