"""The app, to which the types and the controllers are added."""

import headway

app = headway.App("catalog")
"""The app. ``headway serve catalog:app`` runs its controllers and serves its resources."""
