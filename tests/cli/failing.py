"""An app whose reconcile fails."""

import headway
from headway import field


@headway.message
class Thing:
    name: str = field(1)


app = headway.App("fail")
THING = app.type("fail", "v1", "Thing", Thing)


@app.controller(manages=THING)
async def things(rt: headway.Runtime, request: headway.Request) -> None:
    if rt.cache.get(THING, request.id) is not None:
        deeper()


def deeper() -> None:
    raise LookupError("nothing is found here")
