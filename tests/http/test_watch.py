"""Watches over HTTP: as lines and as events, their resumption, and clients that read slowly or leave."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import headway
from headway.http import Bounds, RequestLimits
from tests.http.kit import TEAM, TEAMS, Answer, Api, Team, asked, serving
from tests.rpc.raw_kit import tcp

WATCH = f"{TEAMS}?watch"
SSE = {"accept": "text/event-stream"}


class Lines:
    """The objects of a watch."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def next(self) -> dict[str, Any]:
        line = await self._answer.line()
        assert line is not None
        made: dict[str, Any] = json.loads(line)
        return made


class Events:
    """The events of a watch as a browser reads them: each with its name, its data, and the last id so far."""

    def __init__(self, answer: Answer, last: str) -> None:
        self._answer = answer
        self._last = last

    async def next(self) -> tuple[str, Any, str]:
        name, data = "message", ""
        while line := await self._answer.line():
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                data = value
            else:
                assert field == "id"
                self._last = value
        return name, json.loads(data), self._last


@asynccontextmanager
async def lines(api: Api, path: str = WATCH) -> AsyncIterator[Lines]:
    """Read a watch as lines."""
    async with asked(api.address, path) as answer:
        assert answer.code == 200, await answer.text()
        assert answer.headers["content-type"] == "application/x-ndjson"
        yield Lines(answer)


@asynccontextmanager
async def server_sent(api: Api, path: str = WATCH, last: str | None = None) -> AsyncIterator[Events]:
    """Read a watch as events, after a connection whose last id was ``last``."""
    headers = SSE if last is None else {**SSE, "last-event-id": last}
    async with asked(api.address, path, headers) as answer:
        assert answer.code == 200, await answer.text()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Events(answer, last or "")


def shape(event: dict[str, Any]) -> tuple[str, str, bool]:
    name = event["resource"]["id"]["name"] if "resource" in event else ""
    return event["type"], name, "position" in event


async def test_watch_shows_a_snapshot_its_end_and_every_change() -> None:
    async with serving() as api:
        core = await api.client.apply(TEAM.new("core"))
        with trio.fail_after(30):
            async with lines(api) as watch:
                assert [shape(await watch.next()) for _ in range(3)] == [
                    ("snapshot", "", False),
                    ("upsert", "core", False),
                    ("endOfSnapshot", "", True),
                ]
                await api.client.apply(TEAM.new("docs"))
                assert shape(await watch.next()) == ("upsert", "docs", True)
                await api.client.delete(core)
                assert shape(await watch.next()) == ("delete", "core", True)


async def test_watch_resumes_after_each_of_its_positions() -> None:
    """The position of a list works too. Nothing is repeated and nothing is missed."""
    async with serving() as api:
        await api.client.apply(TEAM.new("core"))
        with trio.fail_after(30):
            listed = (await api.http.get(TEAMS)).json()["position"]
            async with lines(api) as watch:
                ended = [await watch.next() for _ in range(3)][-1]["position"]
                await api.client.apply(TEAM.new("docs"))
                changed = (await watch.next())["position"]
            await api.client.apply(TEAM.new("last"))
            for after, names in ((listed, ["docs", "last"]), (ended, ["docs", "last"]), (changed, ["last"])):
                async with lines(api, f"{WATCH}&resume_after={after}") as watch:
                    assert (await watch.next())["type"] == "resumed"
                    assert [shape(await watch.next())[1] for _ in names] == names


async def test_browser_resumes_after_the_last_event() -> None:
    """The ids are the positions. Within a snapshot there is none, so that it is never resumed in its middle."""
    async with serving() as api:
        await api.client.apply(TEAM.new("core"))
        with trio.fail_after(30):
            async with server_sent(api, last="") as watch:
                first, upsert, end = [await watch.next() for _ in range(3)]
                assert [each[0] for each in (first, upsert, end)] == ["snapshot", "upsert", "endOfSnapshot"]
                assert [each[2] for each in (first, upsert)] == ["", ""]
                assert upsert[1]["resource"]["id"]["name"] == "core"
                assert end[2] == end[1]["position"]
            await api.client.apply(TEAM.new("docs"))
            # The address of an EventSource stays the same, so the header is newer.
            async with server_sent(api, f"{WATCH}&resume_after={end[2]}", last=end[2]) as watch:
                assert (await watch.next())[0] == "resumed"
                name, data, id = await watch.next()
                assert (name, data["resource"]["id"]["name"]) == ("upsert", "docs")
            async with server_sent(api, f"{WATCH}&resume_after={end[2]}", last=id) as watch:
                resumed = await watch.next()
                assert (resumed[0], resumed[2]) == ("resumed", id)


async def _compacted(api: Api) -> str:
    """Return a position after which the history is no longer kept."""
    from headway.http._watch import position_of, position_text

    text = (await api.http.get(TEAMS)).json()["position"]
    return position_text(position_of(text)._replace(session="another"))


async def test_watch_that_cannot_be_resumed_is_refused_as_gone() -> None:
    """A program has to begin again. A browser, which would give up at an error, gets a new snapshot."""
    async with serving() as api:
        await api.client.apply(TEAM.new("core"))
        with trio.fail_after(30):
            gone = await _compacted(api)
            refused = await api.http.get(f"{WATCH}&resume_after={gone}")
            assert refused.status_code == 410, refused.text
            # The address of an EventSource has the position for good. Lost within a snapshot, it has no last id.
            for path, last in (
                (WATCH, gone),
                (f"{WATCH}&resume_after={gone}", None),
                (f"{WATCH}&resume_after={gone}", ""),
            ):
                async with server_sent(api, path, last=last) as watch:
                    assert [(await watch.next())[0] for _ in range(3)] == ["snapshot", "upsert", "endOfSnapshot"]
            assert (await api.http.get(WATCH, headers={**SSE, "last-event-id": "x y"})).status_code == 400


async def test_commit_of_several_changes_can_only_be_resumed_after_its_last() -> None:
    """The changes before it have no position."""
    from headway.storage import Put

    async with serving() as api:
        stored = await api.client.apply(TEAM.new("core"))
        await api.client.apply(TEAM.new("docs"))
        with trio.fail_after(30):
            async with lines(api) as watch:
                while (await watch.next())["type"] != "endOfSnapshot":
                    pass
                puts = []
                for name in ("core", "docs"):
                    message = (await api.client.read(TEAM, name)).message()
                    key = ("default", "default", name)
                    puts.append(Put(TEAM.kind, key, message, message.version))
                await api.backend.commit(tuple(puts))
                both = [shape(await watch.next()) for _ in range(2)]
                assert sorted(each[1] for each in both) == ["core", "docs"]
                assert [each[2] for each in both] == [False, True]
        assert stored.name == "core"


async def test_quiet_watch_repeats_its_position() -> None:
    async with serving(limits=RequestLimits(heartbeat=0.05)) as api:
        with trio.fail_after(30):
            async with lines(api) as watch:
                assert (await watch.next())["type"] == "snapshot"
                end = await watch.next()
                again, more = await watch.next(), await watch.next()
                assert again == more == {"type": "bookmark", "position": end["position"]}


async def test_client_that_leaves_gives_its_watch_back() -> None:
    """Nothing has to happen in the store for it."""
    async with serving(limits=RequestLimits(caller_watches=1, heartbeat=1000)) as api:
        with trio.fail_after(30):
            for _ in range(3):
                while True:
                    async with asked(api.address, WATCH) as answer:
                        if answer.code == 200:
                            await answer.line()
                            break
                        assert answer.code == 429


async def test_client_that_does_not_read_loses_its_connection() -> None:
    """Its place is free again, and others are served meanwhile."""
    bounds = Bounds(connections=64, peer_connections=64, patience=20.0, stall=0.3)
    async with serving(limits=RequestLimits(caller_watches=1), bounds=bounds) as api:
        note = "x" * 200_000
        for number in range(60):
            await api.client.apply(TEAM.new(f"team-{number}", Team(note=note)))
        async with tcp(api.address) as deaf:
            with trio.fail_after(30):
                await deaf.send_all(f"GET {WATCH} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
                assert await deaf.receive_some(1) == b"H"
                refused = 0
                while (await api.http.get(f"{TEAMS}/team-1")).status_code == 200:
                    async with asked(api.address, WATCH) as answer:
                        if answer.code == 200:
                            break
                        refused += 1
                assert refused
        assert api.failures == []


async def test_stopping_server_ends_its_watches_with_a_reason() -> None:
    """The clients know that they may resume elsewhere, and the server doesn't wait for them."""
    ends: list[dict[str, Any]] = []
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            started = trio.Event()
            async with serving() as api:

                async def follow(address: str) -> None:
                    async with asked(address, WATCH) as answer:
                        while (line := await answer.line()) is not None:
                            ends.append(json.loads(line))
                            if ends[-1]["type"] == "endOfSnapshot":
                                started.set()

                nursery.start_soon(follow, api.address)
                await started.wait()
    assert (ends[-1]["type"], ends[-1]["status"], ends[-1]["code"]) == ("failed", 503, "UNAVAILABLE")


async def test_engine_ends_its_watches_and_answers_what_it_has_begun() -> None:
    """The block of the engine ends within the grace period, although a watch is open."""
    app = headway.App("http-watched")
    with trio.fail_after(30):
        async with (
            trio.open_nursery() as nursery,
            headway.open_engine("memory:", app, network=headway.Network(http="127.0.0.1:0", insecure=True)) as engine,
        ):
            path, begun = "/api/tenancy/v1/namespace?watch&partition=*", trio.Event()

            async def follow() -> None:
                assert engine.http is not None
                async with asked(engine.http, path) as answer:
                    while await answer.line() is not None:
                        begun.set()

            nursery.start_soon(follow)
            await begun.wait()


@pytest.mark.parametrize("accept", ["*/*", "application/json", "TEXT/Event-Stream, */*"])
async def test_accept_header_selects_the_form(accept: str) -> None:
    async with serving() as api, asked(api.address, WATCH, {"accept": accept}) as answer:
        kind = answer.headers["content-type"].partition(";")[0]
    assert kind == ("text/event-stream" if "vent" in accept else "application/x-ndjson")
