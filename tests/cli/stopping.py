"""An app whose shutdown lasts until the working directory has a file ``go``."""

import trio

import headway
from headway import field


@headway.message
class Thing:
    name: str = field(1)


app = headway.App("stop")
THING = app.type("stop", "v1", "Thing", Thing)


async def stop(_rt: headway.Runtime, _error: BaseException | None) -> None:
    print("stopping", flush=True)
    while not await trio.Path("go").exists():  # noqa: ASYNC110  # another process makes the file
        await trio.sleep(0.01)
    print("stopped", flush=True)


@app.controller(manages=THING, on_stop=stop)
async def things(rt: headway.Runtime, request: headway.Request) -> None: ...
