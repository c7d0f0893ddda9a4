"""Requests to Subscribe that are wrong or greedy: refused before any work, with the field, the value and a remedy."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from grpclib.const import Status
from hypothesis import given, settings
from hypothesis import strategies as st

from headway._gen.headway.subscribe import v1 as subscribe_pb
from headway.errors import PayloadError
from headway.protobuf import decode, encode, varint
from headway.resource import AnyMessage, Change, Position, ResourceId, SnapshotChunk, TypeName, pb
from headway.rpc import PIECE
from headway.service import Decision, ResourceEncodings
from headway.storage import MemoryBackend
from headway.subscribing import SUBSCRIBE, SubscribeDecoder, SubscribeEncoder
from headway.subscription import (
    Commit,
    Commits,
    NewSnapshot,
    Reached,
    SnapshotComplete,
    SnapshotPart,
    SubscriptionPosition,
    Topic,
    TopicEvent,
    TopicPosition,
)
from tests.helpers.calls import Interrupted, refused
from tests.helpers.declared import NOTE, PLANET, UNKNOWN, a_note, a_type
from tests.helpers.subscribing import a_service, everything, named, of_topic, subscriber, within

Request, Subject = subscribe_pb.SubscribeRequest, subscribe_pb.Subject
LONG = "x" * 300


def positions(**rest: Any) -> subscribe_pb.Position:
    return subscribe_pb.Position(**rest)


def of(*subjects: subscribe_pb.Subject, **rest: Any) -> subscribe_pb.SubscribeRequest:
    return Request(subjects=list(subjects), **rest)


WRONG: list[tuple[subscribe_pb.SubscribeRequest, str]] = [
    (of(), 'subjects has 0 entries: it must have from 1 to 64, such as {"type": {...}, "everything": {}}'),
    (of(*[everything()] * 65), "subjects has 65 entries"),
    (of(everything(), Subject()), "subjects[1]: type or topic is required"),
    (of(Subject(everything=subscribe_pb.Everything())), "subjects[0]: type or topic is required"),
    (of(Subject(type=a_type())), "subjects[0]: a part of the type is required: send named, within or everything"),
    (of(everything(UNKNOWN)), "subjects[0].type"),
    (of(Subject(type=a_type(kind=""), everything=subscribe_pb.Everything())), "subjects[0].type.kind is required"),
    (of(Subject(type=a_type(kind=LONG), everything=subscribe_pb.Everything())), "must have at most"),
    (of(named("")), "name is required"),
    (of(named(LONG)), "is not a valid name"),
    (of(named("UPPER")), "is not a valid name"),
    (of(within(prefix=LONG)), "name_prefix"),
    (of(within(prefix="UPPER")), "must be lower case"),
    (of(within(namespace="A B")), "namespace 'A B'"),
    (of(within(partition="a", type=PLANET)), "the type is cluster-scoped"),
    (of(of_topic("")), "subjects[0].topic is required"),
    (of(of_topic(LONG, "EUR")), "subjects[0].topic"),
    (of(of_topic("rates", LONG)), "subjects[0].named.name"),
    (of(of_topic("rates", "*")), "for all of them send everything"),
    (of(Subject(topic="rates", named=subscribe_pb.Named())), "must be a subject of the topic"),
    (of(Subject(topic="rates")), "a part of the topic is required: send named or everything"),
    (of(Subject(topic="rates", within=subscribe_pb.Within())), "subjects[0].within must be absent"),
    (
        of(Subject(topic="rates", named=subscribe_pb.Named(name="EUR", tenancy=pb.Tenancy(partition="a")))),
        "subjects[0].named.tenancy must be absent: a topic has no tenancy",
    ),
    (of(everything(), progress_interval_ms=3_600_001), "progress_interval_ms 3600001 must be at most 3600000"),
    (of(everything(), resume_after=positions(selection=LONG)), "resume_after.selection"),
    (of(everything(), resume_after=positions(store=pb.Position(store_id=LONG))), "resume_after.store.store_id"),
    (
        of(everything(), resume_after=positions(topics=[subscribe_pb.TopicPosition()] * 65)),
        "resume_after.topics has 65 entries: it must have at most 64",
    ),
    (
        of(everything(), resume_after=positions(topics=[subscribe_pb.TopicPosition(incarnation=LONG)])),
        "resume_after.topics[0].incarnation",
    ),
]


class Untouched(Interrupted):
    """A store that nobody may watch."""

    async def watch(self, *_: Any) -> Any:
        pytest.fail("the store was asked")


def never(_: str) -> dict[str, bytes]:
    pytest.fail("the program was asked")


RATES: Topic[bytes] = Topic("rates", None, never, wildcard=True)


@pytest.mark.parametrize(("request_", "said"), WRONG)
async def test_q2_wrong_request_is_refused_before_the_store_is_asked(
    request_: subscribe_pb.SubscribeRequest, said: str
) -> None:
    store = Untouched(MemoryBackend())
    async with (
        subscriber(store, a_service(store, {"rates": RATES})) as caller,
        caller.channel.stream(SUBSCRIBE, request_) as items,
    ):
        message = await refused(anext(items), Status.INVALID_ARGUMENT, said)
        # What is quoted is cut.
        assert len(message) < 500
    assert caller.unexpected == []
    assert RATES.subscribers == 0


class Denied:
    """Permissions of a caller who may do nothing with one thing, and everything else."""

    caller = "me"

    def __init__(self, nothing_with: str) -> None:
        self.nothing_with = nothing_with

    def rights(self) -> str:
        return self.nothing_with

    def may_know(self, type: TypeName) -> bool:
        return str(type) != self.nothing_with

    def may_watch(self, type: TypeName, partition: str, namespace: str, name_prefix: str) -> bool:  # noqa: ARG002
        return f"{partition}/{namespace}/{name_prefix}" != self.nothing_with

    def may_follow(self, topic: str, subject: str) -> bool:
        return f"{topic}/{subject}" != self.nothing_with

    def may_see(self, topic: str, subject: str) -> bool:
        raise NotImplementedError

    def may_read(self, id: ResourceId, resource: Any) -> Decision:
        raise NotImplementedError

    def may_list(self, *_: Any) -> bool:
        raise NotImplementedError

    may_write = may_delete = may_take_lease = may_list


@pytest.mark.parametrize(
    ("subject", "nothing_with"),
    [
        (everything(), str(NOTE.name)),
        (everything(UNKNOWN), str(UNKNOWN.name)),
        (everything(), "*/*/"),
        (within("a", "b", "c"), "a/b/c"),
        (named("one"), "default/default/one"),
        (named("one", PLANET), "*/*/one"),
        (of_topic("rates"), "rates/*"),
        (of_topic("rates", "EUR"), "rates/EUR"),
        (of_topic("nothing"), "nothing/*"),
    ],
)
async def test_q4_rights_to_every_subject_are_checked_before_the_store_is_asked(
    subject: subscribe_pb.Subject, nothing_with: str
) -> None:
    """One subject without the right is enough, whatever its place, and whether or not it exists."""
    store = Untouched(MemoryBackend())
    service = a_service(store, {"rates": RATES}, Denied(nothing_with))
    async with subscriber(store, service) as caller, caller.open(everything(PLANET), subject) as items:
        await refused(anext(items), Status.PERMISSION_DENIED, "permission denied")
    assert RATES.subscribers == 0


async def test_failing_authorizer_is_the_fault_of_the_service() -> None:
    class Failing(Denied):
        def rights(self) -> str:
            raise OSError("the secret")

    store = Untouched(MemoryBackend())
    async with subscriber(store, a_service(store, {}, Failing(""))) as caller, caller.open(everything()) as items:
        with pytest.raises(Exception, match="the authorizer failed") as caught:
            await anext(items)
    assert "secret" not in str(caught.value)
    assert [str(each) for each in caller.unexpected] == ["the secret"]


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_decoder_raises_nothing_but_payload_errors(body: bytes) -> None:
    """A server that sends nonsense cannot crash a client."""
    with contextlib.suppress(PayloadError):
        SubscribeDecoder()([body])


def resource(name: str) -> pb.Resource:
    stored = a_note(name, "text")
    stored.version = "7"
    return stored


AT = SubscriptionPosition(Position("s", "i", 7), (TopicPosition("rates", "i", 2),), "x")
EVENT = TopicEvent("rates", "EUR", AnyMessage(type_url="u", value=b"v"))


def bodies_of(item: Any) -> list[bytes]:
    """Return the messages that an item is sent as."""
    frames = b"".join(SubscribeEncoder(ResourceEncodings())(item))
    bodies: list[bytes] = []
    while frames:
        size = int.from_bytes(frames[1:5], "big")
        bodies.append(frames[5 : 5 + size])
        frames = frames[5 + size :]
    return bodies


@pytest.mark.parametrize("size", [100, 20_000, 200_000])
def test_message_of_a_snapshot_has_a_bounded_size(size: int) -> None:
    """Stock clients accept four MiB. What is larger than a piece comes alone."""
    resources = [resource(f"n{number}") for number in range(50)]
    for each in resources:
        each.metadata = {"x": "x" * size}
    for item in (SnapshotChunk(resources), SnapshotPart([Change(7, each, False, False) for each in resources])):
        bodies = bodies_of(item)
        if size > PIECE:
            assert len(bodies) == 50
        else:
            assert max(map(len, bodies)) <= PIECE + 20
            assert len(bodies) < 50


@pytest.mark.parametrize(
    "item",
    [
        SnapshotPart([Change(7, resource("a"), False, False), Change(7, resource("b"), True, False), EVENT]),
        SnapshotChunk([resource("a"), resource("b")]),
        SnapshotPart([EVENT]),
        Commits([Commit([Change(7, resource("a"), True, False)], AT._replace(topics=()))]),
        SnapshotComplete(AT),
        NewSnapshot("a reason"),
        Reached(AT),
        Commits([Commit([Change(7, resource("a"), False, False), EVENT], AT), Commit([EVENT], AT)]),
    ],
)
def test_q1_items_survive_the_wire(item: Any) -> None:
    """The hand-written encoder makes messages that the generated classes read."""
    bodies = bodies_of(item)
    assert SubscribeDecoder()(bodies) == [item]
    for body in bodies:
        assert encode(decode(subscribe_pb.SubscribeResponse, body)) == body


def test_batch_of_another_layout_is_read_too() -> None:
    """Another server may order the fields in another way, or send resources that are no resources."""
    item = Commits([Commit([Change(7, resource("a"), False, False), Change(7, resource("b"), True, False)], AT)])
    (message,) = SubscribeEncoder(ResourceEncodings())(item)
    batch = decode(subscribe_pb.SubscribeResponse, message[5:]).batch
    assert batch is not None
    assert batch.position is not None
    at = encode(subscribe_pb.Batch(position=batch.position))
    events = encode(subscribe_pb.Batch(events=batch.events))
    swapped = at + events
    assert SubscribeDecoder()([b"\x0a" + varint(len(swapped)) + swapped]) == [item]
    for wrong in (pb.Resource(), pb.Resource(id=pb.Id(name="a"), version="7"), resource("a")):
        wrong.version = "" if wrong.id is not None and wrong.id.type is not None else wrong.version
        for position in (None, batch.position):
            event = subscribe_pb.Event(upsert=wrong)
            body = encode(subscribe_pb.SubscribeResponse(batch=subscribe_pb.Batch(events=[event], position=position)))
            with pytest.raises(PayloadError, match="without an id or a version"):
                SubscribeDecoder()([body])
