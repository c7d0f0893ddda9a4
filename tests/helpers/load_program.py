"""The app with the types of `watch_load`, for servers in processes of their own."""

import headway
from tests.helpers.declared import Note

app = headway.App("load")
for kind in ("Job", "Copy", "Page"):
    app.type("load", "v1", kind, Note)
