"""A dialer that another program wrote, over the network: it lies, replays, floods, and names what it may not.

It knows the guide and the schema. Each breach ends its stream with a status that names the rule, and is reported. No
copy is stored, and the next stream is served as if nothing had happened.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
from grpclib.const import Status
from grpclib.exceptions import StreamTerminatedError

from headway import Engine, events
from headway._gen.headway.peering import v1 as wire
from headway._gen.headway.peering.v1 import FeedBeginsCause as Cause
from headway._gen.headway.peering.v1 import Subject
from headway.errors import HeadwayError
from headway.peering import EXCHANGE, MAX_EXPORTS, PEER_STREAM, PEERING, STREAM_KEY, export, generate_token, read_token
from headway.peering.links import decoder
from headway.protobuf import encode
from headway.resource import AnyMessage, ResourceType, TypeName, pb, resource_id
from headway.rpc import RemoteChannel, open_channel
from tests.helpers.peers import ROOM, SITE, TEAM, Team, open_accepting
from tests.helpers.service_errors import status_of

Message = wire.PeerMessage
EXPORTS, RESOURCES = Subject.EXPORTS, Subject.RESOURCES


class Dialer(NamedTuple):
    """A connection of the hostile program, with what its exchange has given it."""

    engine: Engine
    channel: RemoteChannel
    opening: Message
    found: list[object]


@asynccontextmanager
async def exchanged(path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Dialer]:
    """Open an engine that exports teams of the partition default, and exchange its token by hand."""
    monkeypatch.setattr("headway.peering._hub._OPENED", 1000)
    found: list[object] = []
    with trio.fail_after(45):
        async with open_accepting(path, report=found.append) as engine:
            exports = [export(TEAM, partition="default")]
            token = read_token(await generate_token(engine.client, "west", exports, plain_text=True))
            async with open_channel(engine.addresses[0], decoders={PEER_STREAM: decoder}) as channel:
                request = wire.ExchangeSecretRequest(
                    peer_id=token.peer_id,
                    secret=token.secret,
                    attempt="a",
                    dialer_id="d",
                    dialer_name="east",
                    dialer_store_id="hostile",
                )
                reply = await channel.unary(EXCHANGE, request, wire.ExchangeSecretResponse)
                opening = Message(open=wire.Open(peer_id=token.peer_id, secret=reply.stream_secret))
                yield Dialer(engine, channel, opening, found)


@asynccontextmanager
async def stream(dialer: Dialer) -> AsyncIterator[Any]:
    """Open a stream, as soon as the engine serves peers, and read its first message."""
    while True:
        async with dialer.channel.duplex(PEER_STREAM, dialer.opening) as call:
            try:
                first = await anext(call)
            except HeadwayError as error:
                # Until the engine leads, nobody does.
                begins = status_of(error) is Status.FAILED_PRECONDITION and "not known yet" in str(str(error))
                if status_of(error) is not Status.UNAVAILABLE and not begins:
                    raise
                await trio.sleep(0.02)
                continue
            assert first.request.subject == EXPORTS
            yield call
            return


def request(subject: Subject, **fields: object) -> Message:
    """Return a request."""
    return Message(request=wire.Request(subject=subject, **fields))  # type: ignore[arg-type]  # by name


def response(nonce: int, subject: Subject, **fields: object) -> Message:
    """Return a response."""
    given = {"nonce": nonce, "subject": subject, "operation": 1, "feed": 1, **fields}
    return Message(response=wire.Response(**given))  # type: ignore[arg-type]  # by name


def exporting(nonce: int, *types: ResourceType[Any], **units: str) -> Message:
    """Return a response with exports."""
    return response(nonce, EXPORTS, exports=wire.Exports(exports=[export(each, **units) for each in types]))


def at(revision: int) -> wire.PeerPosition:
    """Return a position of the hostile store."""
    return wire.PeerPosition(store_id="hostile", session="s", revision=revision)


def begins(nonce: int, cause: Cause = Cause.FIRST, revision: int = 5) -> Message:
    """Return the beginning of a feed."""
    return response(nonce, RESOURCES, begins=wire.FeedBegins(cause=cause, position=at(revision), subscription=1))


def batch(nonce: int, *resources: pb.Resource, **fields: object) -> Message:
    """Return a batch of resources."""
    made = [wire.Event(upsert=each) for each in resources]
    return response(nonce, RESOURCES, batch=wire.Batch(events=made, **fields))  # type: ignore[arg-type]  # by name


def team(name: str = "x", partition: str = "default", version: str = "4", type: TypeName = TEAM.name) -> pb.Resource:
    """Return a team that the hostile store claims to have."""
    id = pb.Id(uid="u", name=name, type=type.message(), tenancy=pb.Tenancy(partition=partition, namespace="default"))
    data = AnyMessage(type_url=TEAM.type_url, value=encode(Team(size=1)))
    return pb.Resource(id=id, version=version, generation="g", data=data)


def subscribe(*exports: wire.Export, **fields: object) -> Message:
    """Return a subscription to resources."""
    return request(RESOURCES, subscribe=wire.Subscribe(exports=list(exports), **{"number": 1, **fields}))  # type: ignore[arg-type]


ASK = request(EXPORTS, subscribe=wire.Subscribe())
MINE = export(TEAM, partition="default")
SNAPSHOT = [exporting(1, TEAM, partition="default"), begins(2)]
NAMES = [TEAM.name._replace(kind=f"T{number}") for number in range(MAX_EXPORTS + 1)]

BREACHES: dict[str, tuple[list[Message], str]] = {
    "opens again": ([Message(open=wire.Open())], "open must be the first message, and must not be sent again"),
    "says nothing": ([Message()], "a message has no content that is known here"),
    "floods with heartbeats": ([Message(heartbeat=wire.Heartbeat())] * 21, "too many heartbeats: at most 20 at once"),
    "floods with subscriptions": ([ASK] * 21, "too many subscriptions: at most 20 at once"),
    "asks before the exports": ([subscribe(MINE)], "SUBJECT_RESOURCES was subscribed before SUBJECT_EXPORTS"),
    "asks for another type": ([ASK, subscribe(export(ROOM))], "staff.v1.Room in */*, which is not exported"),
    "asks for everything": ([ASK, subscribe(export(TEAM))], "staff.v1.Team in */*, which is not exported"),
    "asks for copies": (
        [ASK, subscribe(export(TEAM, partition="peer-west"))],
        "an export names partition peer-west, which has copies",
    ),
    "asks for a secret": (
        [ASK, subscribe(wire.Export(type=TypeName("internal", "v1", "PeeringSecrets").message()))],
        "internal.v1.PeeringSecrets in */*, which is not exported",
    ),
    "answers what was not sent": ([request(EXPORTS, ack=wire.Ack(nonce=7))], "answered nonce 7"),
    "refuses what was not sent": (
        [request(RESOURCES, nack=wire.Nack(nonce=1, message="no"))],
        "answered nonce 1: no response is unanswered",
    ),
    "exports too much": (
        [response(1, EXPORTS, exports=wire.Exports(exports=[wire.Export(type=each.message()) for each in NAMES]))],
        f"more than {MAX_EXPORTS} exports",
    ),
    "exports copies": ([exporting(1, TEAM, partition="peer-west")], "an export names partition peer-west"),
    "exports a name that is too long": (
        [
            response(
                1, EXPORTS, exports=wire.Exports(exports=[wire.Export(type=TypeName("g", "v1", "K" * 300).message())])
            )
        ],
        "or a name that is too long",
    ),
    "sends without a subscription": ([batch(1, team())], "a response for subject 3, which was not subscribed"),
    "replays a response": ([exporting(1, TEAM), exporting(1, TEAM)], "response 1 follows response 1: replayed"),
    "skips a response": ([exporting(2, TEAM)], "response 2 follows response 0: replayed, lost or reordered"),
    "sends into another partition": ([*SNAPSHOT, batch(3, team(partition="lab"))], "in partition 'lab', which was not"),
    "sends a copy": ([*SNAPSHOT, batch(3, team(partition="peer-west"))], "in partition 'peer-west', which was not"),
    "sends another type": ([*SNAPSHOT, batch(3, team(type=ROOM.name))], "of type staff.v1.Room in partition 'default'"),
    "sends a peering": ([*SNAPSHOT, batch(3, team(type=PEERING.name))], "of type peering.v1.Peering in partition"),
    "withholds another type": (
        [
            *SNAPSHOT,
            response(
                3, RESOURCES, batch=wire.Batch(events=[wire.Event(withheld=wire.Withheld(id=team(type=ROOM.name).id))])
            ),
        ],
        "of type staff.v1.Room in partition 'default'",
    ),
    "sends a version that is no number": ([*SNAPSHOT, batch(3, team(version="new"))], "version 'new', which cannot be"),
    "sends the future": (
        [
            *SNAPSHOT,
            response(3, RESOURCES, complete=wire.FeedComplete(position=at(5))),
            batch(4, team(version="9"), position=at(7)),
        ],
        "version '9', which cannot be",
    ),
    "goes back": (
        [*SNAPSHOT, response(3, RESOURCES, complete=wire.FeedComplete(position=at(5))), batch(4, position=at(4))],
        "position 4 of store 'hostile' follows 5",
    ),
    "resumes what is not stored": (
        [exporting(1, TEAM, partition="default"), begins(2, Cause.RESUMED, 3)],
        "a feed resumes after revision 3, which is not what is stored here",
    ),
    "ends a snapshot twice": (
        [*SNAPSHOT, *(response(nonce, RESOURCES, complete=wire.FeedComplete(position=at(5))) for nonce in (3, 4))],
        "a snapshot ends that has not begun",
    ),
    "has a position without a store": (
        [*SNAPSHOT, response(3, RESOURCES, complete=wire.FeedComplete(position=wire.PeerPosition(revision=6)))],
        "a position has no store_id or no revision",
    ),
    "has a huge position": (
        [
            *SNAPSHOT,
            response(
                3, RESOURCES, complete=wire.FeedComplete(position=wire.PeerPosition(store_id="x" * 301, revision=6))
            ),
        ],
        "a position has a field of more than 300 characters",
    ),
}


async def ended(call: Any, messages: list[Any]) -> HeadwayError:
    """Send messages, and read until the stream has failed."""
    found: HeadwayError | None = None
    async with trio.open_nursery() as nursery:

        async def send() -> None:
            # The engine may end the stream before it has read all of them.
            with contextlib.suppress(HeadwayError, trio.BrokenResourceError, StreamTerminatedError):
                for each in messages:
                    await call.send(each)

        nursery.start_soon(send)
        try:
            async for _ in call:
                pass
        except HeadwayError as error:
            found = error
        nursery.cancel_scope.cancel()
    assert found is not None, "the stream has ended without an error"
    return found


async def test_each_breach_ends_the_stream_by_name_and_stores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with exchanged(tmp_path, monkeypatch) as dialer:
        await dialer.engine.client.write(TEAM.new("ada", Team(size=1)))
        for name, (messages, text) in BREACHES.items():
            async with stream(dialer) as call:
                error = await ended(call, messages)
            assert status_of(error) is Status.INVALID_ARGUMENT, f"{name}: {error}"
            assert text in str(error), f"{name}: {error}"
            copies = await dialer.engine.client.list(TEAM, partition="peer-west")
            assert copies == [], name
        refused = [each.why for each in dialer.found if isinstance(each, events.PeerRefused)]
        assert BREACHES["opens again"][1] in refused
        # An honest stream is served.
        async with stream(dialer) as call:
            for message in (*SNAPSHOT, batch(3, team("x"))):
                await call.send(message)
            async for message in call:
                if message.request is not None and message.request.ack is not None and message.request.ack.nonce == 3:
                    break
        assert [each.name for each in await dialer.engine.client.list(TEAM, partition="peer-west")] == ["x"]


async def refusals(call: Any, messages: list[Message], count: int) -> list[str]:
    """Send messages, and return the reasons of the next refusals."""
    for each in messages:
        await call.send(each)
    found: list[str] = []
    async for message in call:
        nack = None if message.request is None else message.request.nack
        if nack is not None:
            found += [f"{resource_id(each.id).name}: {each.message}" for each in nack.refused] or [nack.message]
        if len(found) >= count:
            return found
    raise AssertionError(found)


async def test_what_cannot_be_stored_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream goes on, and the conditions of the peering name it as well."""
    async with exchanged(tmp_path, monkeypatch) as dialer:
        async with stream(dialer) as call:
            found = await refusals(call, [exporting(1, PEERING, SITE)], 1)
            assert found == [
                "peering.v1.Peering in */*: the type belongs to Headway itself; staff.v1.Site in */*: the type is "
                "cluster-scoped"
            ]
        bad = team("bad")
        bad.data = AnyMessage(type_url="type.googleapis.com/other", value=b"")
        garbage = team("garbage")
        garbage.data = AnyMessage(type_url=TEAM.type_url, value=b"\xff\xff")
        loud = team("loud")
        loud.metadata = {"k" * 300: "v"}
        async with stream(dialer) as call:
            found = await refusals(call, [*SNAPSHOT, batch(3, team("../up"), bad, garbage, loud, team("good"))], 4)
            assert [each.partition(":")[0] for each in found] == ["../up", "bad", "garbage", "loud"]
            await call.send(response(4, RESOURCES, complete=wire.FeedComplete(position=at(5), count=5)))
            peering = await dialer.engine.client.read(PEERING, "west")
            while "Team ../up" not in str(peering.status.get(STREAM_KEY)):
                await trio.sleep(0.02)
                peering = await dialer.engine.client.read(PEERING, "west")
        assert [each.name for each in await dialer.engine.client.list(TEAM, partition="peer-west")] == ["good"]


async def test_bytes_that_are_no_message_end_the_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with exchanged(tmp_path, monkeypatch) as dialer, stream(dialer) as call:
        # Field 1 of a PeerMessage is a message, and this is a text that does not decode as one.
        error = await ended(call, [AnyMessage(type_url="\u07ff" * 5)])
        assert status_of(error) is Status.INVALID_ARGUMENT
        assert (str(error)).startswith("a message is not valid: ")
        assert [each.peer for each in dialer.found if isinstance(each, events.PeerRefused)] == ["west"]
