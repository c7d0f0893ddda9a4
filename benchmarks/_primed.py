"""Shared code of the scenarios that measure how long priming from a filled store takes."""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

import headway
from benchmarks._message import TEXT, Note, built, put, texts
from headway.events import RunStarted
from headway.protobuf import encode
from headway.resource import ResourceType
from headway.storage import Backend

CONTROLLER = "notes"
AT_ONCE = 2000
"""The number of resources in each commit that fills a store."""


def one_type() -> tuple[headway.App, ResourceType[Note]]:
    """Return an app with one controller of one type, which has an index of 10 groups."""
    app = headway.App("bench")
    type = app.type("bench", "v1", "Managed", Note)

    @app.controller(manages=type, indexes=[headway.indexes.by_metadata(type, "group")], name=CONTROLLER)
    async def notes(rt: headway.Runtime, request: headway.Request) -> None:
        """Do nothing. The engine is closed as soon as it is primed."""

    return app, type


async def filled(store: Backend, type: ResourceType[Note], size: int) -> None:
    """Store ``size`` resources, in commits of `AT_ONCE` resources."""
    value = encode(Note(text=TEXT))
    for begin in range(0, size, AT_ONCE):
        made = [built(type, texts(number), value) for number in range(begin, min(begin + AT_ONCE, size))]
        await store.commit([put(type, each) for each in made])


async def primed_after(
    store: Backend | str,
    app: headway.App,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the seconds of a clock from opening an engine until its controller's run is primed."""
    primed = trio.Event()
    end = 0.0

    def report(event: object) -> None:
        nonlocal end
        if isinstance(event, RunStarted) and event.controller == f"bench/{CONTROLLER}":
            end = clock()
            primed.set()

    begin = clock()
    async with headway.open_engine(store, app, report=report):
        await primed.wait()
    return end - begin
