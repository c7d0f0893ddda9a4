"""The engine process of the placement tests: `python -m tests.helpers.place_program ENDPOINTS NAME`.

It runs a controller that copies each Job, and prints a line for each event that a test waits for.
"""

from __future__ import annotations

import sys

import trio

import headway
from headway import events
from tests.helpers.cluster import Copy, Job

TTL = 2.0


def app_of(name: str) -> tuple[headway.App, headway.ResourceType[Job], headway.ResourceType[Copy]]:
    """Return the app, which is the same in every process, and its types."""
    app = headway.App("staff")
    job, copy = app.type("staff", "v1", "Job", Job), app.type("staff", "v1", "Copy", Copy)

    @app.controller(manages=job, watches=[headway.watch(copy, headway.mappers.same_name())])
    async def copier(rt: headway.Runtime, request: headway.Request[Job]) -> None:
        given, made = rt.resource(request), rt.cache.get(copy, request.id.name)
        if given is None or (made is not None and made.data.text == given.data.text):
            return
        wanted = copy.new(request.id.name, Copy(text=given.data.text, by=name))
        if given.data.text != "stubborn":
            await rt.client.apply(wanted)
            return
        # This reconcile continues after its run has ended, and still tries to write.
        with trio.CancelScope(shield=True):
            print("is at it", flush=True)
            await trio.sleep(1)
            try:
                await rt.client.apply(wanted)
            except headway.HeadwayError as error:
                print("refused", type(error).__name__, flush=True)
            else:
                print("wrote", flush=True)

    return app, job, copy


def say(event: object) -> None:
    """Print an event that a test waits for."""
    if isinstance(event, events.LeaseAwaited | events.LeaseTaken | events.LeaseEnded):
        print(type(event).__name__, event.name, event.term, flush=True)
    elif isinstance(event, events.RunEnded):
        print("RunEnded", type(event.error).__name__, flush=True)
    elif isinstance(event, events.RunStarted):
        print("RunStarted", event.term, flush=True)


async def main(endpoints: str, name: str) -> None:
    """Run until the process is ended."""
    app, _, _ = app_of(name)
    async with headway.open_workers(endpoints, app, process=name, report=say, timing=headway.Timing(lease_ttl=TTL)):
        print("opened", flush=True)
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2])
