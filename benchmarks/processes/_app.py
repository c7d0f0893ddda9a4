"""The app that the measured servers serve."""

import headway
from headway import field


@headway.message
class Thing:
    """A small payload."""

    text: str = field(1)


app = headway.App("bench")
THING = app.type("bench", "v1", "Thing", Thing)
