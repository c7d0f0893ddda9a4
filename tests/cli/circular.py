"""An app with a cycle, for the tests of `headway graph`."""

import headway
from headway import field


@headway.message(name="tests.Side")
class Side:
    text: str = field(1)


app = headway.App("ring")
LEFT = app.type("ring", "v1", "Left", Side)
RIGHT = app.type("ring", "v1", "Right", Side)
THIRD = app.type("ring", "v1", "Third", Side)


@app.controller(manages=THIRD, watches=[headway.watch(RIGHT, headway.mappers.same_name())], writes=[LEFT])
async def lefts(_: headway.Runtime, __: headway.Request[Side]) -> None:
    """Do nothing: only the declaration is read."""


@app.controller(manages=THIRD, watches=[headway.watch(LEFT, headway.mappers.same_name())], writes=[RIGHT])
async def rights(_: headway.Runtime, __: headway.Request[Side]) -> None:
    """Do nothing: only the declaration is read."""


@app.timer(LEFT, every=60, writes=[])
async def clock(_: headway.Runtime, __: headway.Resource[Side]) -> None:
    """Do nothing: only the declaration is read."""
