"""The errors of daemons, sources and reconcilers show no secret that they have read, however they have read it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import Context

import pytest
import trio

import headway
from headway import events, field
from headway.base import story
from headway.cache import READING
from headway.journal import JournalOptions
from headway.reconcile import SecretReads, _secret_reads
from headway.why.answers import reconcile_texts
from tests.helpers.why_programs import PATIENCE, eventually, part

CODE = "canary-4711"


@headway.message(name="secretreads.Site")
class Site:
    place: str = field(1)


@headway.message(name="secretreads.Door")
class Door:
    code: str = field(1, secret=True)


def code_of(door: headway.Resource[Door]) -> str:
    return door.data.code[:6]


def nothing(_: headway.Resource[Door], __: headway.CacheReader) -> list[headway.ResourceId]:
    return []


class Program:
    """A daemon of sites, which reads doors."""

    def __init__(self, *, journal: bool = True) -> None:
        self.app = headway.App("sites")
        self.site = self.app.type("sites", "v1", "Site", Site)
        self.door = self.app.type("sites", "v1", "Door", Door)
        self.by_code = headway.indexes.by(self.door, "code", code_of)
        self.ended: list[events.DaemonEnded] = []
        self.journal = journal

    async def errors(self, count: int = 3) -> list[str]:
        """Return the first errors of the daemon, once there are so many."""

        def note(event: object) -> None:
            if isinstance(event, events.DaemonEnded):
                self.ended.append(event)

        size = 1 << 20 if self.journal else 0
        async with headway.open_engine("memory:", self.app, report=note, journal=JournalOptions(memory=size)) as engine:
            north = await engine.client.apply(self.site.new("north", Site()))
            await engine.client.apply(self.door.new("front", Door(code=CODE), owner=north))

            async def enough() -> list[str] | None:
                ended = self.ended[:count]
                return [story(each.error) for each in ended if each.error] if len(ended) == count else None

            errors = await eventually(enough)
            self.why = await engine.why(self.site.id("north"))
        return errors


@pytest.mark.parametrize("journal", [True, False])
async def test_daemon_shows_no_secret_that_it_has_read(journal: bool) -> None:  # of the table
    """Also of another type than its own, and without a journal. Its reads are none of the reconcile that began it."""
    program = Program(journal=journal)
    watches = [headway.watch(program.door, nothing)]

    @program.app.daemon(program.site, watches=watches, backoff=headway.Backoff(0.001, 0.001))
    async def guard(rt: headway.Runtime, site: headway.Resource[Site]) -> None:
        with trio.fail_after(PATIENCE):
            while (door := rt.cache.get(program.door, "front")) is None:  # noqa: ASYNC110  # a read has no event
                await trio.sleep(0.01)
        raise ValueError(f"{site.name} is opened by {door.data.code}")

    for error in await program.errors():
        assert error == "ValueError: north is opened by (redacted)"
    if journal:
        assert not any("Door" in reconcile_texts(each)[1] for each in part(program.why).reconciles)


async def test_number_of_resources_that_are_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last ones that were read. The list itself stays empty, so that no number of reads ends it."""
    monkeypatch.setattr(_secret_reads, "MOST", 3)
    program = Program()
    seen: list[SecretReads] = []

    async def source(rt: headway.Runtime, _: object) -> None:
        reads = READING.get()
        assert isinstance(reads, SecretReads)
        seen.append(reads)
        with trio.fail_after(PATIENCE):
            while len(rt.cache.list(program.door)) < 5:  # noqa: ASYNC110  # a read has no event
                await trio.sleep(0.01)
        for _ in range(20):
            for number in range(5):
                rt.cache.get(program.door, f"door-{number}")
        texts = [rt.cache.get(program.door, f"door-{number}").data.code for number in (2, 3, 4)]  # type: ignore[union-attr]  # stored
        raise ValueError(" ".join(texts))

    @program.app.controller(manages=program.door, sources={"knock": source})
    async def doors(_: headway.Runtime, __: headway.Request[Door]) -> None: ...

    failed: list[BaseException] = []

    def note(event: object) -> None:
        if isinstance(event, events.RunEnded) and event.error is not None:
            failed.append(event.error)

    async with headway.open_engine("memory:", program.app, report=note) as engine:
        for number in range(5):
            await engine.client.apply(program.door.new(f"door-{number}", Door(code=f"{CODE}-{number}")))

        async def ended() -> bool | None:
            return bool(failed) or None

        await eventually(ended)
    assert "(redacted) (redacted) (redacted)" in story(failed[0])
    assert len(seen[0]) == 0
    assert len(seen[0]._kept) == 3


Read = Callable[[headway.Runtime, Program, headway.ResourceId], Awaitable[headway.Resource[Door]]]


async def by_list(rt: headway.Runtime, program: Program, _: headway.ResourceId) -> headway.Resource[Door]:
    door = rt.cache.list(program.door)[0]
    door.data.code += " (old)"
    return door


async def by_owner(rt: headway.Runtime, program: Program, owner: headway.ResourceId) -> headway.Resource[Door]:
    return rt.cache.owned(program.door, owner)[0]


async def by_index(rt: headway.Runtime, program: Program, _: headway.ResourceId) -> headway.Resource[Door]:
    return rt.cache.index(program.by_code, CODE[:6])[0]


async def by_prefix(rt: headway.Runtime, program: Program, _: headway.ResourceId) -> headway.Resource[Door]:
    return rt.cache.index_prefix(program.by_code, CODE[:3])[0]


async def replaced(rt: headway.Runtime, program: Program) -> None:
    """Replace the code of the door. The cache then shows another one, which is read."""
    await rt.client.apply(program.door.new("front", Door(code="another")))
    assert found(rt.cache, program).data.code == "another"


def found(cache: headway.CacheReader, program: Program) -> headway.Resource[Door]:
    door = cache.get(program.door, "front")
    assert door is not None
    return door


async def cached(rt: headway.Runtime, program: Program) -> None:
    """Return once the cache has a door. It is looked for in a context of its own, where no read is noted."""
    with trio.fail_after(PATIENCE):
        while Context().run(rt.cache.get, program.door, "front") is None:  # noqa: ASYNC110  # a read has no event
            await trio.sleep(0.01)


async def before_another_version(
    rt: headway.Runtime, program: Program, _: headway.ResourceId
) -> headway.Resource[Door]:
    door = found(rt.cache, program)
    door.data.code += " (old)"
    await replaced(rt, program)
    return door


async def in_a_view(rt: headway.Runtime, program: Program, _: headway.ResourceId) -> headway.Resource[Door]:
    async with rt.cache.view(program.door) as view:
        await replaced(rt, program)
        return found(view, program)


async def in_a_list_of_a_view(rt: headway.Runtime, program: Program, _: headway.ResourceId) -> headway.Resource[Door]:
    async with rt.cache.view(program.door) as view:
        await replaced(rt, program)
        return view.list(program.door)[0]


READS = [by_list, by_owner, by_index, by_prefix, before_another_version, in_a_view, in_a_list_of_a_view]


@pytest.mark.parametrize("read", READS)
async def test_daemon_shows_no_secret_however_it_was_read(read: Read) -> None:
    """An older version that the daemon still holds is removed as well, and a later change to the copy hides nothing."""
    program = Program()
    watches, texts = [headway.watch(program.door, nothing)], list[str]()

    @program.app.daemon(program.site, watches=watches, indexes=[program.by_code])
    async def guard(rt: headway.Runtime, site: headway.Resource[Site]) -> None:
        await cached(rt, program)
        door = await read(rt, program, site.id)
        texts.append(door.data.code)
        raise ValueError(f"{site.name} is opened by {door.data.code}")

    [error] = await program.errors(1)
    assert texts[0].startswith(CODE)
    assert error == "ValueError: north is opened by (redacted)" + texts[0].removeprefix(CODE)


@pytest.mark.parametrize("journal", [True, False])
@pytest.mark.parametrize("read", READS)
async def test_reconciler_shows_no_secret_however_it_was_read(read: Read, journal: bool) -> None:
    """With and without a journal."""
    program = Program()
    failed: list[BaseException] = []

    @program.app.controller(
        manages=program.site,
        watches=[headway.watch(program.door, nothing)],
        indexes=[program.by_code],
        backoff=headway.Backoff(60, 60),
    )
    async def sites(rt: headway.Runtime, request: headway.Request[Site]) -> None:
        site = rt.resource(request)
        assert site is not None
        await cached(rt, program)
        # More reads than the journal records, except where it is to show the version that a view has.
        for number in range(0 if read is in_a_view else 20):
            rt.cache.get(program.site, f"site-{number}")
        door = await read(rt, program, site.id)
        raise ValueError(f"{site.name} is opened by {door.data.code}")

    def note(event: object) -> None:
        if isinstance(event, events.Reconciled) and event.error is not None:
            failed.append(event.error)

    size = 1 << 20 if journal else 0
    async with headway.open_engine("memory:", program.app, report=note, journal=JournalOptions(memory=size)) as engine:
        north = await engine.client.apply(program.site.new("north", Site()))
        door = await engine.client.apply(program.door.new("front", Door(code=CODE), owner=north))

        async def ended() -> bool | None:
            return bool(failed) or None

        await eventually(ended)
        why = await engine.why(north.id)
    assert story(failed[0]).removesuffix(" (old)") == "ValueError: north is opened by (redacted)"
    if journal:
        reads = reconcile_texts(part(why).reconciles[0])[1].split(", ")
        assert reads[0] == f"Site north at version {north.version}"
        if read is in_a_view:
            assert reads[-1] == f"Door front at version {door.version}"
        else:
            assert len(reads) == 16


async def test_secret_of_an_earlier_reconcile_is_no_secret_of_the_next() -> None:
    """What another reconcile of the worker has read may be an ordinary word in this one."""
    program = Program()
    failed: list[BaseException] = []

    @program.app.controller(
        manages=program.site, watches=[headway.watch(program.door, nothing)], backoff=headway.Backoff(0.001, 60)
    )
    async def sites(rt: headway.Runtime, request: headway.Request[Site]) -> None:
        if request.attempt == 1:
            with trio.fail_after(PATIENCE):
                while rt.cache.get(program.door, "front") is None:  # noqa: ASYNC110  # a read has no event
                    await trio.sleep(0.01)
        raise ValueError(CODE)

    def note(event: object) -> None:
        if isinstance(event, events.Reconciled) and event.error is not None:
            failed.append(event.error)

    async with headway.open_engine("memory:", program.app, report=note) as engine:
        await engine.client.apply(program.site.new("north", Site()))
        await engine.client.apply(program.door.new("front", Door(code=CODE)))

        async def twice() -> bool | None:
            return len(failed) > 1 or None

        await eventually(twice)
    assert [story(each) for each in failed[:2]] == ["ValueError: (redacted)", f"ValueError: {CODE}"]


async def test_condition_of_a_failure_shows_no_secret_that_the_reconcile_has_read() -> None:
    """The secret is of another resource than the one that has the condition."""
    program = Program()

    @program.app.controller(manages=program.site, watches=[headway.watch(program.door, nothing)])
    async def sites(rt: headway.Runtime, request: headway.Request[Site]) -> None:
        site = rt.resource(request)
        assert site is not None
        async with rt.conditions(site, failure="Opened"):
            await cached(rt, program)
            raise ValueError((await by_list(rt, program, site.id)).data.code)

    async with headway.open_engine("memory:", program.app, report=events.ignore) as engine:
        north = await engine.client.apply(program.site.new("north", Site()))
        await engine.client.apply(program.door.new("front", Door(code=CODE)))

        async def noted() -> list[str] | None:
            status = (await engine.client.read(program.site, north.id)).status
            return [condition.message for each in status.values() for condition in each.conditions] or None

        assert await eventually(noted) == ["(redacted) (old)"]
