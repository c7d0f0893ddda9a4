"""Outputs of an older program, on resources with fields that only a newer program knows."""

from __future__ import annotations

from typing import Any

from trio.testing import MockClock

import headway
from headway.protobuf import field, message
from headway.storage import MemoryBackend
from tests.helpers.older import New, known, whole


@message
class Source:
    text: str = field(1)


def program(output: Any) -> tuple[headway.App, headway.ResourceType[Source], headway.ResourceType[Any]]:
    """Return an app whose controller makes this output of each source, and its types."""
    app = headway.App("staff")
    source = app.type("staff", "v1", "Source", Source)
    team = app.type("staff", "v1", "Team", type(output))

    @app.controller(manages=source, watches=[headway.watch(team, headway.mappers.owner())], name="teams")
    async def teams(rt: headway.Runtime, request: headway.Request) -> None:
        owner = rt.resource(request)
        if owner is not None:
            async with rt.outputs(team, owner=owner) as wanted:
                output.title = owner.data.text
                await wanted.apply(owner.name, output)

    return app, source, team


async def run(store: MemoryBackend, output: Any, text: str) -> tuple[Any, str]:
    """Run a program until it has made its output of a source with this text. Return the output and its version."""
    app, source, team = program(output)
    async with headway.open_engine(store, app) as engine:
        await engine.client.apply(source.new("core", Source(text=text)))
        await engine.wait_idle()
        made = await engine.client.read(team, "core")
        return made.data, made.version


async def test_older_program_keeps_the_fields_of_a_newer_one(autojump_clock: MockClock) -> None:
    """In a rolling upgrade, the two would otherwise write in turn for ever."""
    store = MemoryBackend()
    await run(store, known(whole()), "Core")
    _, first = await run(store, whole(), "Core")
    for output in (known(whole()), whole()):
        _, version = await run(store, output, "Core")
        assert version == first
    await run(store, known(whole()), "Kernel")
    expected: New = whole()
    expected.title = "Kernel"
    made, _ = await run(store, whole(), "Kernel")
    assert made == expected
