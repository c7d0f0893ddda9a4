"""Strong reads: they come from the store itself, and are never behind the cache."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock
from typing_extensions import override

import headway
from headway import testing
from headway.events import ignore
from headway.rpc import PassingChannel
from tests.helpers.plain_types import Note


class StaleReads(PassingChannel):
    """A channel that repeats its earlier answers to Read and List while it is stale.

    It behaves like a replica that has stopped following and ignores min_revision.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stale = False
        self.says_where = True
        self.least: list[int] = []
        self._answers: dict[tuple[str, bytes], Any] = {}

    @override
    async def unary(self, path: str, request: Any, *rest: Any, **options: Any) -> Any:
        method = path.rpartition("/")[2]
        if method not in ("Read", "List"):
            return await super().unary(path, request, *rest, **options)
        self.least.append(request.min_revision)
        request.min_revision = 0
        asked = (method, bytes(request))
        if not self.stale or asked not in self._answers:
            self._answers[asked] = await super().unary(path, request, *rest, **options)
        reply = self._answers[asked]
        if not self.says_where:
            reply.position = None
        return reply


class NotesApp:
    """A controller that reads its key, and a type that it doesn't watch, in every possible way."""

    def __init__(self) -> None:
        self.app = headway.App("notes")
        self.note = self.app.type("notes", "v1", "Note", Note)
        self.other = self.app.type("notes", "v1", "Other", Note)
        self.read: list[tuple[str, str]] = []
        self.failed: list[type[Exception]] = []
        self.at_start: list[str] = []
        self.app.controller(manages=self.note, initialiser=self._start, backoff=headway.Backoff(1.0, 1.0), name="look")(
            self._look
        )

    async def _start(self, rt: headway.Runtime) -> None:
        found = await rt.strong.get(self.note, "it")
        self.at_start.append("" if found is None else found.data.text)

    async def _look(self, rt: headway.Runtime, request: headway.Request) -> None:
        cached = rt.cache.get(self.note, request.id)
        assert cached is not None
        self.read.append(("client", (await rt.client.read(self.note, request.id)).data.text))
        try:
            self.read.append(("read", (await rt.strong.read(self.note, request.id)).data.text))
            self.read += [("list", each.data.text) for each in await rt.strong.list(self.note)]
            found = await rt.strong.get(self.other, "it")
            self.read.append(("get", "" if found is None else found.data.text))
        except headway.HeadwayError as error:
            self.failed.append(type(error))
            raise
        assert cached.data.text == self.read[-3][1]


@pytest.mark.parametrize("says_where", [True, False])
async def test_strong_read_is_never_behind_the_cache(says_where: bool, autojump_clock: MockClock) -> None:
    """A lagging server gives no answer for any type. Once it has caught up, the retried key gets one.

    Plain reads accept stale answers at any time.
    """
    notes, reads = NotesApp(), StaleReads()
    async with testing.open_engine("memory:", notes.app, report=ignore, wrap_channel=reads.over) as engine:
        await engine.client.write(notes.note.new("it", Note(text="old")))
        await engine.wait_idle()
        expected = [("client", "old"), ("read", "old"), ("list", "old"), ("get", "")]
        assert notes.read == expected
        reads.stale, reads.says_where = True, says_where
        notes.read.clear()
        await engine.client.apply(notes.note.new("it", Note(text="new")))
        await trio.sleep(3.5)
        assert notes.failed[:2] == [headway.errors.Unavailable, headway.errors.Unavailable]
        assert set(notes.read) == {("client", "old")}
        reads.stale, reads.says_where = False, True
        await engine.client.write(notes.other.new("it", Note(text="other")))
        notes.read.clear()
        await engine.wait_idle()
        assert notes.read == [("client", "new"), ("read", "new"), ("list", "new"), ("get", "other")]
    assert autojump_clock.current_time() < 60


async def test_strong_read_in_an_initialiser_is_not_behind_the_fence(autojump_clock: MockClock) -> None:
    """The read has at least the revision of the commit that raised the run's fence."""
    notes, reads = NotesApp(), StaleReads()
    async with testing.open_engine("memory:", notes.app, report=ignore, wrap_channel=reads.over) as engine:
        await engine.wait_idle()
    assert notes.at_start == [""]
    assert reads.least[0] > 0
    assert autojump_clock.current_time() < 60
