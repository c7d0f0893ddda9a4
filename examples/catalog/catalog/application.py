"""The app. The modules of types and controllers add to it."""

import headway

app = headway.App("catalog")
"""The app. ``headway serve catalog:app`` runs its controllers and serves its resources."""
