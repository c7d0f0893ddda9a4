"""Errors show no secret that a function has read through a projection, whether the projection declares it or not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

import headway
from headway import events, field
from headway.base import story
from tests.helpers.why_programs import PATIENCE, eventually

CODE = "canary-4711"


@headway.message(name="secretprojections.Site")
class Site:
    place: str = field(1)


@headway.message(name="secretprojections.Door")
class Door:
    code: str = field(1, secret=True)
    keys: list[bytes] = field(2, secret=True)
    color: str = field(3)


@headway.message(name="secretprojections.Plain")
class Plain:
    """It does not declare the secrets that it is made from."""

    label: str = field(1)
    key: bytes = field(2)


@headway.message(name="secretprojections.Declared")
class Declared:
    label: str = field(1, secret=True)
    key: bytes = field(2, secret=True)


def projected(door: headway.ResourceType[Door], payload: type[Any]) -> headway.Projection[Any]:
    return headway.projection(
        door, payload, lambda each: payload(label=f"door {each.data.code}", key=b"".join(each.data.keys))
    )


def nothing(_: object, __: object) -> list[headway.ResourceId]:
    return []


class Program:
    """Sites, and doors that are cached as a projection."""

    def __init__(self, payload: type[Any]) -> None:
        self.app = headway.App("sites")
        self.site = self.app.type("sites", "v1", "Site", Site)
        self.whole = self.app.type("sites", "v1", "Door", Door)
        self.door = projected(self.whole, payload)
        self.failed: list[BaseException] = []

    async def error(self, kind: type[Any]) -> str:
        """Return the error of the first such event, once there is a door."""

        def note(event: Any) -> None:
            if isinstance(event, kind) and event.error is not None:
                self.failed.append(event.error)

        async with headway.open_engine("memory:", self.app, report=note) as engine:
            await engine.client.apply(self.site.new("north", Site()))
            await engine.client.apply(self.whole.new("front", Door(code=CODE, keys=[b"canary-0815"], color="green")))

            async def ended() -> str | None:
                return story(self.failed[0]) if self.failed else None

            return await eventually(ended)


async def by_get(cache: headway.CacheReader, program: Program) -> Any:
    return cache.get(program.door, "front")


async def by_list(cache: headway.CacheReader, program: Program) -> Any:
    return next(iter(cache.list(program.door)), None)


async def in_a_view(cache: Any, program: Program) -> Any:
    async with cache.view(program.door) as view:
        return view.get(program.door, "front")


Read = Callable[[Any, Program], Awaitable[Any]]


@pytest.mark.parametrize("payload", [Plain, Declared])
@pytest.mark.parametrize("read", [by_get, by_list, in_a_view])
async def test_reconciler_shows_no_secret_that_it_has_read_in_a_projection(read: Read, payload: type[Any]) -> None:
    """Neither a part of a text, nor bytes, nor what it has changed in its copy. Ordinary words stay."""
    program = Program(payload)

    @program.app.controller(manages=program.site, watches=[headway.watch(program.door, nothing)])
    async def sites(rt: headway.Runtime, request: headway.Request[Site]) -> None:
        with trio.fail_after(PATIENCE):
            while (door := await read(rt.cache, program)) is None:  # noqa: ASYNC110  # a read has no event
                await trio.sleep(0.01)
        label, key = door.data.label, door.data.key
        door.data.label, door.data.key = "", b""
        raise ValueError(f"{request.id.name} green {label.removeprefix('door ')} {label} {key}")

    error = await program.error(events.Reconciled)
    assert CODE not in error
    assert "canary" not in error
    assert error.startswith("ValueError: north green (redacted)")


async def test_controller_and_daemon_of_a_projection_show_no_secret_of_it() -> None:
    for kind in (events.Reconciled, events.DaemonEnded):
        program = Program(Plain)
        if kind is events.Reconciled:

            @program.app.controller(manages=program.door)
            async def doors(_: headway.Runtime, __: headway.Request[Any]) -> None:
                raise ValueError(CODE)

        else:

            @program.app.daemon(program.door)
            async def guard(_: headway.Runtime, door: Any) -> None:
                raise ValueError(door.data.label)

        error = await program.error(kind)
        assert error.removeprefix("ValueError: ").removeprefix("door ") == "(redacted)"


async def test_mapper_and_index_of_a_projection_show_no_secret_of_it() -> None:
    for kind in (events.MappingFailed, events.IndexFailed):
        program = Program(Plain)

        def reveal(door: Any, _: object = None) -> Any:
            raise ValueError(door.data.label)

        fails = kind is events.MappingFailed

        @program.app.controller(
            manages=program.site,
            watches=[headway.watch(program.door, reveal if fails else nothing)],
            indexes=[] if fails else [headway.indexes.by(program.door, "label", reveal)],
        )
        async def sites(_: headway.Runtime, __: headway.Request[Site]) -> None: ...

        assert await program.error(kind) == "ValueError: door (redacted)"
