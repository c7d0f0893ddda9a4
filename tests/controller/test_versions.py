"""A controller whose write stores a resource as another version of its kind."""

from __future__ import annotations

import pytest
import trio

import headway
from headway.resource import ResourceType


@headway.message
class Old:
    text: str = headway.field(1)


@headway.message
class New:
    text: str = headway.field(1)


@headway.message
class Job:
    name: str = headway.field(1)


@pytest.mark.usefixtures("autojump_clock")
async def test_c5_a_write_as_another_version_is_seen_in_both() -> None:
    """As soon as it has returned: gone as the one, there as the other."""
    app = headway.App("versions")
    old: ResourceType[Old] = app.type("versions", "v1", "Note", Old)
    new: ResourceType[New] = app.type("versions", "v2", "Note", New)
    job = app.type("versions", "v1", "Job", Job)
    seen: list[tuple[bool, bool]] = []
    done = trio.Event()

    @app.controller(manages=job, watches={old: headway.map_same_name(), new: headway.map_same_name()})
    async def convert(rt: headway.Runtime, _: headway.Request) -> None:
        found = rt.cache.get(old, "one")
        if found is not None:
            await rt.client.write(new.new("one", New(text=found.data.text)))
            seen.append((rt.cache.get(old, "one") is None, rt.cache.get(new, "one") is not None))
            done.set()

    async with headway.open_engine("memory:", app) as engine:
        await engine.client.write(old.new("one", Old(text="x")))
        await engine.client.write(job.new("go", Job()))
        with trio.fail_after(60):
            await done.wait()
    assert seen == [(True, True)]
