"""grpcurl, which knows the schema only from reflection, subscribes to types and topics."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio

import headway
from headway import field
from tests.helpers.go_programs import need_go_program

METHOD = "headway.subscribe.v1.SubscribeService/Subscribe"


@headway.message(name="curled.v1.Team")
class Team:
    note: str = field(1)


@headway.message(name="curled.v1.Rate")
class Rate:
    cents: int = field(1)


app = headway.App("curled")
TEAM = app.type("curled", "v1", "Team", Team)
RAW = app.topic("raw", snapshot=lambda _: {"a": b"1"}, wildcard=True)
RATES = app.topic("rates", Rate, snapshot=lambda _: {}, wildcard=True)
SUBJECTS = [
    {"type": {"group": "curled", "groupVersion": "v1", "kind": "Team"}, "everything": {}},
    {"topic": "raw", "named": {"name": "a"}},
    {"topic": "rates", "everything": {}},
]


class Messages:
    """The messages that a process prints, one JSON object after the other."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdout is not None
        self._stdout = process.stdout
        self._text = ""

    async def next(self, *, progress: bool = False) -> Any:
        """Return the next message. Skip reports of progress, unless they are wanted."""
        while True:
            message = await self._next()
            if progress or "progress" not in message:
                return message

    async def _next(self) -> Any:
        while True:
            try:
                message, end = json.JSONDecoder().raw_decode(self._text)
            except ValueError:
                data = await self._stdout.receive_some()
                assert data, "grpcurl has ended"
                self._text = (self._text + data.decode()).lstrip()
            else:
                self._text = self._text[end:].lstrip()
                return message


@asynccontextmanager
async def curl(where: str, request: Any) -> AsyncIterator[Messages]:
    program = str(need_go_program("grpcurl"))
    command = [program, "-plaintext", "-d", json.dumps(request), where, METHOD]
    async with trio.open_nursery() as nursery:
        run = partial(trio.run_process, command, stdout=subprocess.PIPE, check=False)
        process: trio.Process = await nursery.start(run)
        yield Messages(process)
        nursery.cancel_scope.cancel()


async def test_stock_client_subscribes_and_resumes() -> None:
    """Payloads of types and topics are JSON with their own fields. Positions are given back as they came."""
    need_go_program("grpcurl")
    with trio.fail_after(60):
        async with headway.open_engine(
            "memory:", app, network=headway.Network(["127.0.0.1:0"], insecure=True)
        ) as engine:
            await engine.wait_idle()
            await engine.client.create(TEAM.new("core", Team(note="1")))
            async with curl(engine.addresses[0], {"subjects": SUBJECTS}) as messages:
                batches: list[Any] = []
                while "endOfSnapshot" not in (message := await messages.next()):
                    batches.append(message["batch"])
                events = [event for batch in batches for event in batch["events"]]
                assert all("position" not in batch for batch in batches)
                assert [each["upsert"]["data"]["note"] for each in events if "upsert" in each] == ["1"]
                assert [each["published"] for each in events if "published" in each] == [
                    {
                        "topic": "raw",
                        "subject": "a",
                        "data": {"@type": "type.googleapis.com/google.protobuf.BytesValue", "value": "MQ=="},
                    }
                ]
                await engine.client.delete(TEAM.id("core"))
                (event,) = (await messages.next())["batch"]["events"]
                assert event["delete"]["id"]["name"] == "core"
                at = RATES.publish({"EUR": Rate(cents=5), "CHF": Rate(cents=6)})
                batch = (await messages.next())["batch"]
                assert [
                    (each["published"]["subject"], each["published"]["data"]["cents"]) for each in batch["events"]
                ] == [("EUR", "5"), ("CHF", "6")]
                assert int(batch["position"]["topics"][1]["number"]) == at.number

            await engine.client.create(TEAM.new("late"))
            request = {"subjects": SUBJECTS, "resumeAfter": batch["position"]}
            async with curl(engine.addresses[0], request) as messages:
                assert (await messages.next(progress=True))["progress"]["position"] == batch["position"]
                (event,) = (await messages.next())["batch"]["events"]
                assert event["upsert"]["id"]["name"] == "late"


async def test_stock_client_is_told_what_is_wrong() -> None:
    async with headway.open_engine("memory:", app, network=headway.Network(["127.0.0.1:0"], insecure=True)) as engine:
        program = str(need_go_program("grpcurl"))
        request = json.dumps({"subjects": [{"topic": "ghosts", "everything": {}}]})
        with trio.fail_after(30):
            done = await trio.run_process(
                [program, "-plaintext", "-d", request, engine.addresses[0], METHOD], capture_stderr=True, check=False
            )
    assert done.returncode
    assert b"InvalidArgument" in done.stderr
    assert b"subjects[0].topic 'ghosts' not found" in done.stderr
