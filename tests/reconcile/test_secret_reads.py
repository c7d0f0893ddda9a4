"""The errors of daemons and sources show no secret that they have read, and keep no more than they may need."""

from __future__ import annotations

import pytest
import trio

import headway
from headway import events, field
from headway.base import story
from headway.cache import READING
from headway.reconcile import SecretReads, _secret_reads
from tests.helpers.why_programs import PATIENCE, eventually, part

CODE = "canary-4711"


@headway.message(name="secretreads.Site")
class Site:
    place: str = field(1)


@headway.message(name="secretreads.Door")
class Door:
    code: str = field(1, secret=True)


def nothing(_: headway.Resource[Door], __: headway.CacheReader) -> list[headway.ResourceId]:
    return []


class Program:
    """A daemon of sites, which reads doors."""

    def __init__(self, *, journal: bool = True) -> None:
        self.app = headway.App("sites")
        self.site = self.app.type("sites", "v1", "Site", Site)
        self.door = self.app.type("sites", "v1", "Door", Door)
        self.ended: list[events.DaemonEnded] = []
        self.journal = journal

    async def errors(self) -> list[str]:
        """Return the errors of the daemon, once there are three."""

        def note(event: object) -> None:
            if isinstance(event, events.DaemonEnded):
                self.ended.append(event)

        size = 1 << 20 if self.journal else 0
        async with headway.open_engine("memory:", self.app, report=note, journal_bytes=size) as engine:
            await engine.client.apply(self.door.new("front", Door(code=CODE)))
            await engine.client.apply(self.site.new("north", Site()))

            async def three() -> list[str] | None:
                return [story(each.error) for each in self.ended[:3] if each.error] if len(self.ended) > 2 else None

            found = await eventually(three)
            self.why = await engine.why(self.site.id("north"))
        return found


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
        reads = [str(each) for ran in part(program.why).reconciles for each in ran.reads]
        assert not any("Door" in each for each in reads)


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
