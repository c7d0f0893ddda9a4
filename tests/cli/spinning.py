"""An app whose reconcile loops forever without a checkpoint."""

import headway
from headway import field


@headway.message
class Thing:
    name: str = field(1)


app = headway.App("spin")
THING = app.type("spin", "v1", "Thing", Thing)


@app.controller(manages=THING)
async def things(rt: headway.Runtime, request: headway.Request) -> None:
    if rt.cache.get(THING, request.id) is not None:
        print("spinning", flush=True)
        while True:
            pass
