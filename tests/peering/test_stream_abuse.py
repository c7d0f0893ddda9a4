"""A peer that lies, replays, floods, or names what it may not: the stream ends with the rule that it broke."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headway._gen.headway.peering import v1 as wire
from headway._gen.headway.peering.v1 import FeedBeginsCause as Cause
from headway._gen.headway.peering.v1 import Operation, Subject
from headway.peering import PeerLimits
from headway.peering.stream import Breach, Exported
from headway.resource import TypeName, pb
from tests.peering.stream_kit import TEAM, TEAMS, Importing, Origin, Stream, team

ACCOUNT = TypeName("staff", "v1", "Account")
LIMITS = PeerLimits(batch=2, copies=6, refused=2, commit=4, exports=3, subscriptions=3)


@pytest.fixture
def stream() -> Stream:
    """A stream that has copied three teams."""
    origin = Origin()
    origin.commit(ada="1", ben="1", cyd="1")
    stream = Stream(origin, Importing(), limits=LIMITS)
    stream.run()
    return stream


def at(revision: int, store_id: str = "origin") -> wire.PeerPosition:
    """Return a position of the origin."""
    return wire.PeerPosition(store_id=store_id, session="s1", revision=revision, selection=str(TEAMS))


def response(stream: Stream, subject: Subject = Subject.RESOURCES, **fields: object) -> wire.Response:
    """Return the next response of a peer that follows the rules for nonces."""
    nonce = stream.sent[-1].nonce + 1
    given = {"nonce": nonce, "subject": subject, "operation": Operation.UPSERT, "feed": stream.feed, **fields}
    return wire.Response(**given)  # type: ignore[arg-type]  # by name


def batch(*events: wire.Event, **fields: object) -> wire.Batch:
    """Return a batch with a position, unless another is given."""
    return wire.Batch(events=list(events), **{"position": at(9), **fields})  # type: ignore[arg-type]  # by name


def upsert(name: str = "ada", version: int | str = 9, **fields: str) -> wire.Event:
    """Return the event of a team."""
    made = team(name, 1, **fields)
    made.version = str(version)
    return wire.Event(upsert=made)


def withheld(name: str, **fields: str) -> wire.Event:
    """Return the event of a team that the peer does not send."""
    return wire.Event(withheld=wire.Withheld(id=team(name, 1, **fields).id, message="too large"))


def typed(type: TypeName) -> wire.Event:
    """Return the event of a resource of a type."""
    event = upsert()
    assert event.upsert is not None
    assert event.upsert.id is not None
    event.upsert.id.type = type.message()
    return event


BREACHES: dict[str, tuple[Callable[[Stream], wire.Response], str]] = {
    "replayed": (lambda each: response(each, nonce=2), "response 2 follows response 5: replayed"),
    "skipped": (lambda each: response(each, nonce=99), "response 99 follows response 5"),
    "subject not subscribed": (
        lambda each: response(each, Subject.SERVER, server=wire.Server()),
        "subject 1, which was not subscribed",
    ),
    "type not subscribed": (lambda each: response(each, batch=batch(typed(ACCOUNT))), "type staff.v1.Account"),
    "partition not subscribed": (
        lambda each: response(each, batch=batch(upsert(partition="west"))),
        "'west', which was not subscribed",
    ),
    "a copy": (lambda each: response(each, batch=batch(upsert(partition="peer-x"))), "'peer-x', which was not"),
    "no version": (lambda each: response(each, batch=batch(upsert(version="x"))), "version 'x', which cannot be"),
    "a version of the future": (lambda each: response(each, batch=batch(upsert(version=10))), "version '10'"),
    "a huge version": (lambda each: response(each, batch=batch(upsert(version="9" * 5000))), "which cannot be"),
    "an empty event": (lambda each: response(each, batch=batch(wire.Event())), "an event has no content"),
    "something withheld that was not subscribed": (
        lambda each: response(each, batch=batch(withheld("ada", partition="west"))),
        "'west', which was not subscribed",
    ),
    "too much withheld": (
        lambda each: response(each, batch=batch(*(withheld(f"t{n}") for n in range(3)))),
        "more than 2 resources cannot be stored, the last Team t2: too large",
    ),
    "no position": (lambda each: response(each, progress=wire.Progress()), "a position has no store_id"),
    "a position that goes back": (lambda each: response(each, progress=wire.Progress(position=at(1))), "follows 2"),
    "a position of another store": (
        lambda each: response(each, progress=wire.Progress(position=at(9, "x"))),
        "position 9 of store 'x' follows",
    ),
    "a feed that has not begun": (lambda each: response(each, feed=7, batch=batch()), "feed 7 has not begun"),
    "a feed of the past": (
        lambda each: response(each, feed=0, begins=wire.FeedBegins(position=at(9), subscription=1)),
        "feed 0 begins after feed 1",
    ),
    "a feed without a subscription": (
        lambda each: response(each, feed=2, begins=wire.FeedBegins(position=at(9), subscription=4)),
        "a feed of subscription 4",
    ),
    "a feed that resumes elsewhere": (
        lambda each: response(
            each, feed=2, begins=wire.FeedBegins(cause=Cause.RESUMED, position=at(9), subscription=1)
        ),
        "a feed resumes after revision 9, which is not",
    ),
    "an end without a snapshot": (
        lambda each: response(each, complete=wire.FeedComplete(position=at(9), count=3)),
        "a snapshot ends that has not begun",
    ),
    "a large commit": (
        lambda each: response(each, batch=batch(*(upsert(f"t{n}") for n in range(5)), more=True, position=None)),
        "a commit of more than 4 changes",
    ),
    "too many copies": (
        lambda each: response(each, batch=batch(*(upsert(f"t{n}") for n in range(4)))),
        "exports more than 6 resources",
    ),
    "too many exports": (
        lambda each: response(each, Subject.EXPORTS, exports=wire.Exports(exports=[TEAMS.message() for _ in range(4)])),
        "more than 3 exports",
    ),
    "an export without a type": (
        lambda each: response(each, Subject.EXPORTS, exports=wire.Exports(exports=[wire.Export()])),
        "has an incomplete type",
    ),
    "an export of copies": (
        lambda each: response(
            each, Subject.EXPORTS, exports=wire.Exports(exports=[Exported(TEAM, "peer-a", "*").message()])
        ),
        "an export names partition peer-a",
    ),
}


@pytest.mark.parametrize("name", BREACHES)
def test_response_that_no_honest_peer_sends_ends_the_stream(stream: Stream, name: str) -> None:
    """The copies stay as they are."""
    make, text = BREACHES[name]
    before = stream.store.copies
    with pytest.raises(Breach, match=text.replace("(", r"\(")):
        stream.receiver.response(make(stream))
    assert stream.store.copies == before


NACKS: dict[str, tuple[Callable[[Stream], wire.Response], str]] = {
    "missing nonce": (lambda each: response(each, nonce=0, batch=batch()), "the response has no nonce"),
    "unknown type": (lambda each: response(each, 9, batch=batch()), "subject 9 is not known"),  # type: ignore[arg-type]
    "nil payload": (lambda each: response(each), "the response has no payload"),
    "mismatching type": (lambda each: response(each, exports=wire.Exports()), "does not belong to subject 3"),
    "unsupported operation": (lambda each: response(each, operation=0, batch=batch()), "operation 0 is not supported"),
}


@pytest.mark.parametrize("name", NACKS)
def test_r5_nack_names_what_is_wrong_with_a_response(stream: Stream, name: str) -> None:
    make, text = NACKS[name]
    given = make(stream)
    (reply,) = stream.receiver.response(given).replies
    assert reply.nack is not None
    assert text in reply.nack.message
    assert reply.nack.nonce == given.nonce


def test_r5_nonces_increase_and_each_response_is_answered(stream: Stream) -> None:
    assert [each.nonce for each in stream.sent] == [1, 2, 3, 4, 5]
    assert [each.ack.nonce for each in stream.requests if each.ack is not None] == [1, 2, 3, 4, 5]


def test_r1_only_upsert_is_accepted(stream: Stream) -> None:
    assert {each.operation for each in stream.sent} == {Operation.UPSERT}
    for operation in (0, 2, 77):
        given = response(stream, operation=operation, batch=batch(upsert()))
        stream.sent.append(given)
        (reply,) = stream.receiver.response(given).replies
        assert reply.nack is not None


def test_older_state_of_a_resource_is_ignored(stream: Stream) -> None:
    """It is ignored even if the peer sends it with a new position."""
    stream.origin.commit(ada="2")
    stream.run()
    before = stream.store.copies
    assert before["ada"][1] == "3"
    uid = before["ada"][0]
    work = stream.receiver.response(response(stream, batch=batch(upsert("ada", 2, uid=uid))))
    assert work.commits == []
    assert stream.copies.stale == 1


def test_more_refusals_than_the_limit_end_the_stream() -> None:
    origin = Origin()
    origin.commit(ada="1", ben="1", cyd="1")
    stream = Stream(origin, Importing(), limits=LIMITS, check=lambda _: "no")
    with pytest.raises(Breach, match="more than 2 resources cannot be stored, the last Team"):
        stream.run()


def asked(subject: int = Subject.RESOURCES, **fields: object) -> wire.Request:
    """Return a request."""
    return wire.Request(subject=subject, **fields)  # type: ignore[arg-type]  # by name


def subscribed(*exports: Exported, **fields: object) -> wire.Request:
    """Return a subscription to the resources."""
    subscribe = wire.Subscribe(exports=[each.message() for each in exports], **{"number": 2, **fields})  # type: ignore[arg-type]
    return asked(subscribe=subscribe)


ANYTHING = Exported(TEAM, "*", "*")
REQUESTS = {
    "unknown subject": (asked(9, subscribe=wire.Subscribe()), "subject 9 is not known"),
    "no subject": (asked(0, subscribe=wire.Subscribe()), "subject 0 is not known"),
    "the accepting side's address": (asked(1, subscribe=wire.Subscribe()), "only the dialing side"),
    "no content": (asked(), "a request has no content"),
    "what is not exported": (subscribed(ANYTHING), r"staff.v1.Team in \*/\*, which is not exported"),
    "an old number": (subscribed(TEAMS, number=1), "subscription 1 follows 1"),
    "too much again": (subscribed(TEAMS, again=[pb.Id()] * 3), "3 resources again: at most 2"),
    "a nonce that was not sent": (asked(ack=wire.Ack(nonce=99)), "answered nonce 99: no response is unanswered"),
    "an answer twice": (asked(ack=wire.Ack(nonce=5)), "answered nonce 5"),
    "an answer without a nonce": (asked(ack=wire.Ack()), "an answer has no nonce"),
    "a refusal without a nonce": (asked(nack=wire.Nack()), "an answer has no nonce"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_request_that_no_honest_peer_sends_ends_the_stream(stream: Stream, name: str) -> None:
    """R-3: an unknown type, and an answer without a nonce, are refused."""
    request, text = REQUESTS[name]
    with pytest.raises(Breach, match=text):
        stream.sender.request(request, 0.0)


def test_answers_must_come_in_order_and_name_their_subject(stream: Stream) -> None:
    for number in range(3):
        stream.origin.commit(ada=str(number))
    while any([stream.read(), stream.send()]):
        pass
    with pytest.raises(Breach, match="answered nonce 8: answer 6 next"):
        stream.sender.request(asked(ack=wire.Ack(nonce=8)), 0.0)
    with pytest.raises(Breach, match="the answer to nonce 6 names subject 2 instead of 3"):
        stream.sender.request(asked(Subject.EXPORTS, ack=wire.Ack(nonce=6)), 0.0)


def test_refusal_of_what_was_not_sent_ends_the_stream(stream: Stream) -> None:
    stream.origin.commit(ada="2")
    while any([stream.read(), stream.send()]):
        pass
    refused = wire.Refused(id=team("x", 1, partition="west").id)
    with pytest.raises(Breach, match="refused Team west/default/x, which was not sent"):
        stream.sender.request(asked(nack=wire.Nack(nonce=6, refused=[refused])), 0.0)


def test_subscriptions_are_bounded_over_time(stream: Stream) -> None:
    """R-7: subscribing again to a subject changes nothing. It costs the peer its allowance."""
    again = asked(Subject.EXPORTS, subscribe=wire.Subscribe())
    stream.sender.request(again, 100.0)
    stream.sender.request(again, 100.0)
    stream.sender.request(again, 100.0)
    assert stream.sender.take(100.0) is None
    with pytest.raises(Breach, match="too many subscriptions: at most 3 at once"):
        stream.sender.request(again, 100.0)
    stream.sender.request(again, 101.0)


def test_resources_before_exports_are_refused() -> None:
    stream = Stream(Origin(), Importing())
    with pytest.raises(Breach, match="SUBJECT_RESOURCES was subscribed before SUBJECT_EXPORTS"):
        stream.sender.request(subscribed(), 0.0)


def test_copies_are_never_exported() -> None:
    """Copies are not exported again, so that two peers copy nothing in a circle."""
    origin = Origin()
    origin.commit(ada="1")
    origin.states[2]["peer-x", "default", "bob"] = team("bob", 2, partition="peer-x")
    store = Importing()
    stream = Stream(origin, store, exports=(ANYTHING,))
    stream.run()
    assert list(store.copies) == ["ada"]


def test_r7_each_subscription_begins_a_feed_of_its_own() -> None:
    """The peer ignores the feeds of its earlier subscriptions, even if it repeats itself."""
    origin = Origin()
    origin.commit(ada="1")
    stream = Stream(origin, Importing())
    while not stream.requests or stream.requests[-1].subject is not Subject.RESOURCES:
        assert stream.request() or stream.send() or stream.receive()
    while stream.send() or stream.read():
        pass
    before = stream.sender.wanted
    assert before is not None
    for number, after in [(2, None), (3, at(1))]:
        stream.sender.request(subscribed(TEAMS, number=number, resume_after=after), 0.0)
        assert stream.sender.take(0.0) is None
        assert stream.sender.wanted is not None
        assert stream.sender.wanted.number == before.number + number - 1
