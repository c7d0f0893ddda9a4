"""Writes of clients and controllers whose connection to PostgreSQL breaks behind the COMMIT, before its answer."""

from __future__ import annotations

import pytest
import trio

import headway
from headway import events, testing
from headway.errors import OutcomeUnknown
from headway.testing import History, RecordingChannel, WriteAnswered
from tests.helpers.cluster import Copy, Job
from tests.helpers.postgres_server import PostgresServer, wired
from tests.storage.etcd_kit import until


async def test_write_that_was_stored_without_an_answer_is_no_conflict(postgres: PostgresServer) -> None:
    """Neither a client nor a controller finds its own write in its way. Both find it stored."""
    history, reported = History(), list[object]()
    app = headway.App("staff")
    job, copy = app.type("staff", "v1", "Job", Job), app.type("staff", "v1", "Copy", Copy)
    begun: list[str | None] = []
    async with wired(postgres) as (url, wires):
        channel = f"headway {url.partition('schema=')[2]}".encode()

        @app.controller(manages=job, watches=[headway.watch(copy, headway.mappers.same_name())], name="copier")
        async def copier(rt: headway.Runtime, request: headway.Request[Job]) -> None:
            found = rt.cache.get(copy, request.id.name)
            begun.append(None if found is None else found.data.text)
            if len(begun) == 1:
                wires.break_at(channel, delivered=True)
            given = rt.resource(request)
            assert given is not None
            await rt.client.apply(copy.new(given.name, Copy(text=given.data.text)))

        async with testing.open_engine(
            url,
            app,
            wrap_channel=RecordingChannel("web-1", history.add, clock=trio.current_time).over,
            report=reported.append,
        ) as engine:
            await engine.wait_idle()
            wires.break_at(channel, delivered=True)
            with pytest.raises(OutcomeUnknown):
                await engine.client.apply(job.new("a", Job(text="one")))
            stored = await engine.client.read(job, "a")
            again = await engine.client.apply(job.new("a", Job(text="one")))
            await until(lambda: len(begun) > 1)
            await engine.wait_idle()
            assert again.version == stored.version
            assert (await engine.client.read(copy, "a")).data.text == "one"
    assert begun[:2] == [None, "one"]
    written = [fact.outcome for fact in history.facts if isinstance(fact, WriteAnswered)]
    assert written == ["unknown"]
    resolved = [type(each) for each in reported if isinstance(each, events.WriteUnknown | events.WriteResolved)]
    assert resolved == [events.WriteUnknown, events.WriteResolved]
