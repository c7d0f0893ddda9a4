"""The worker process of the tests with etcd: `python -m tests.helpers.shard_program ENDPOINTS NAME`.

It runs a sharded controller that copies each Job, and prints the beginning and the end of each reconcile with its time.
The clock is the machine's, so that the times of several processes can be compared.
"""

from __future__ import annotations

import sys
import time

import trio

import headway
from headway.events import ignore
from tests.helpers.cluster import Copy, Job

TTL = 2.0
LINGER = "linger"
"""The text of a job whose reconcile does not end."""


def app_of(name: str) -> tuple[headway.App, headway.ResourceType[Job], headway.ResourceType[Copy]]:
    """Return the app, which is the same in every process, and its types."""
    app = headway.App("staff")
    job, copy = app.type("staff", "v1", "Job", Job), app.type("staff", "v1", "Copy", Copy)

    @app.controller(
        manages=job,
        watches=[headway.watch(copy, headway.mappers.same_name())],
        placement=headway.sharded(shards=4),
        concurrency=8,
    )
    async def copier(rt: headway.Runtime, request: headway.Request[Job]) -> None:
        key = request.id.name
        print("begin", key, time.monotonic(), flush=True)
        try:
            given, made = rt.resource(request), rt.cache.get(copy, key)
            if given is None:
                return
            if given.data.text == LINGER and name == "web-1":
                await trio.sleep_forever()
            if made is None or made.data.text != given.data.text:
                await rt.client.apply(copy.new(key, Copy(text=given.data.text, by=name)))
        finally:
            print("end", key, time.monotonic(), flush=True)

    return app, job, copy


async def main(endpoints: str, name: str) -> None:
    """Run until the process is ended."""
    app, _, _ = app_of(name)
    async with headway.open_workers(endpoints, app, process=name, report=ignore, timing=headway.Timing(lease_ttl=TTL)):
        print("opened", flush=True)
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2])
