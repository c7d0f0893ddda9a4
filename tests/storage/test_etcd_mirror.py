"""The mirror of a store in etcd and its comparisons, tested without etcd and without I/O."""

from collections import Counter

import pytest

from headway._gen.mvccpb import Event, EventEventType, KeyValue
from headway.protobuf import encode
from headway.resource import Position
from headway.storage import _timeline
from headway.storage._timeline import Timeline
from headway.storage.etcd._snapshot import check_same_history, check_standing
from headway.storage.etcd.layout import (
    PLACES,
    Head,
    Layout,
    Lost,
    Mirror,
    OtherHistory,
    StoredFence,
    _keys,
    anchor_value,
    checkpoint_value,
    fence_value,
    head_from,
    head_value,
    lease_name_from,
    place_of,
    resource_value,
    revision_of,
    scope_from,
    timeline_from,
)
from headway.testing.conformance import KIND, thing

LAYOUT = Layout("/p")
TIMELINE = Timeline(((revision_of(3), "a"), (revision_of(8), "b")))
HEAD = Head(revision_of(10), 4, (1,), b"nonce-10")
KEY = ("default", "default", "n")


def mirror() -> Mirror:
    return Mirror(LAYOUT, "store", TIMELINE, HEAD, Counter(), max_changes=100, max_age=60)


def put(revision: int, name: str = "n") -> Event:
    key = LAYOUT.resource(KIND, ("default", "default", name))
    return Event(kv=KeyValue(key=key, value=encode(thing(name)), mod_revision=revision, version=1))


def head(revision: int, sequence: int, *changes: int, nonce: bytes = b"nonce-xx") -> Event:
    value = head_value(changes or (1,), nonce)
    return Event(kv=KeyValue(key=LAYOUT.head, value=value, mod_revision=revision, version=sequence))


def test_commit_is_applied_when_it_is_complete() -> None:
    it = mirror()
    assert it.position == Position("store", "b", HEAD.revision)
    it.receive([put(11)], 0)
    assert it.tables.get(KIND, KEY) is None
    it.receive([head(11, 5)], 0)
    found = it.tables.get(KIND, KEY)
    assert found is not None
    assert found.version == str(revision_of(11))
    assert it.position == Position("store", "b", revision_of(11))


def test_own_commit_is_taken_from_its_draft_and_gets_its_version() -> None:
    it, mine = mirror(), thing("n")
    it.given[b"nonce-xx"] = {LAYOUT.resource(KIND, KEY): (KIND, KEY, None, mine)}
    it.receive([put(11), put(11, "m"), head(11, 5, 2)], 0)
    assert it.tables.get(KIND, KEY) is mine
    for name in ("n", "m"):
        found = it.tables.get(KIND, ("default", "default", name))
        assert found is not None
        assert found.version == str(revision_of(11))
    assert not it.given


@pytest.mark.parametrize(
    "events",
    [
        [put(11), put(12), head(12, 5, 2)],
        [put(12), put(11, "m"), head(12, 5, 2)],
        [put(11), head(12, 5)],
        [put(11), head(11, 6)],
        [head(11, 5)],
        [put(11), put(11, "m"), head(11, 5)],
        [Event(type=EventEventType.DELETE, kv=KeyValue(key=LAYOUT.head, mod_revision=11))],
        [Event(type=EventEventType.DELETE, kv=put(11).kv), head(11, 5)],
    ],
    ids=[
        "unfinished",
        "out of order",
        "another's head",
        "gap",
        "missing",
        "too many",
        "head deleted",
        "deletion of an unknown key",
    ],
)
def test_stream_that_does_not_match_its_commits_is_closed(events: list[Event]) -> None:
    it = mirror()
    with pytest.raises(Lost):
        it.receive(events, 0)
    assert (it.head, it.tables.get(KIND, KEY)) == (HEAD, None)


@pytest.mark.parametrize("counted", [0, 2, 6, 4 * PLACES + 4])
def test_head_that_counts_no_commits_is_foreign(counted: int) -> None:
    with pytest.raises(ValueError, match="counted"):
        head_from(KeyValue(key=LAYOUT.head, value=b"x" * (counted + 8), mod_revision=11, version=5))


def test_head_of_an_earlier_version_is_read_and_that_version_rejects_new_heads() -> None:
    """The earlier version counted one commit in twelve bytes and accepted nothing else. Its revisions are lower."""
    former = KeyValue(key=LAYOUT.head, value=b"\x02\0\0\x03nonce-11", mod_revision=11, version=5)
    assert head_from(former) == Head(revision_of(11), 5, (0x02000003,), b"nonce-11")
    for changes in ([1], [1, 1], [0] * PLACES):
        value = head_value(changes, b"nonce-11")
        assert len(value) != len(former.value)
        found = head_from(KeyValue(key=LAYOUT.head, value=value, mod_revision=11, version=5))
        assert found == Head(revision_of(11, len(changes) - 1), 5, tuple(changes), b"nonce-11")


def test_commits_of_one_transaction_are_applied_one_by_one() -> None:
    it = mirror()
    events = [put(11), put(11, "m"), put(11, "o")]
    for place, event in enumerate(events[1:], 1):
        assert event.kv is not None
        event.kv.value = resource_value(event.kv.value, place)
    it.receive([*events, head(11, 5, 1, 1, 1)], 0)
    assert it.head.revision == revision_of(11, 2)
    changes = it.log.take(it.log.cursor(KIND, HEAD.revision))
    assert changes is not None
    assert [(each.revision, each.resource.version, each.more) for each in changes.changes] == [
        (revision_of(11, place), str(revision_of(11, place)), False) for place in range(3)
    ]


def test_transaction_that_cannot_be_applied_completely_changes_nothing() -> None:
    it = mirror()
    gone = Event(type=EventEventType.DELETE, kv=put(11, "m").kv)
    with pytest.raises(Lost):
        it.receive([put(11), gone, head(11, 5, 1, 1)], 0)
    assert (it.head, it.tables.get(KIND, KEY), it.log.head) == (HEAD, None, HEAD.revision)


@pytest.mark.parametrize("type", [EventEventType.PUT, EventEventType.DELETE])
def test_repeated_change_does_not_hide_a_lost_one(type: EventEventType) -> None:
    """The number of changes equals the head's count, but one change is missing."""
    it = mirror()
    it.receive([put(11), put(11, "m"), head(11, 5, 2)], 0)
    repeated = Event(type=type, kv=put(12).kv)
    with pytest.raises(Lost, match="twice"):
        it.receive([repeated, repeated, head(12, 6, 2)], 0)
    assert len(it.tables.keys(KIND)) == 2


def test_interrupted_commit_is_received_again() -> None:
    it = mirror()
    it.receive([put(11)], 0)
    it.interrupted()
    it.receive([put(11), head(11, 5)], 0)
    assert it.head.revision == revision_of(11)


def test_resumed_stream_must_begin_with_the_known_head() -> None:
    it = mirror()
    it.rejoining = True
    it.receive([put(10), head(10, 4, nonce=b"nonce-10"), put(11), head(11, 5)], 0)
    assert it.head.revision == revision_of(11)
    for other in ([head(10, 4, nonce=b"another!")], [put(11), head(11, 5)]):
        it = mirror()
        it.rejoining = True
        with pytest.raises(OtherHistory):
            it.receive(other, 0)


def test_fence_is_above_the_term_of_an_ended_lease() -> None:
    it = mirror()
    fence = KeyValue(key=LAYOUT.fence("c", ""), value=fence_value(5, 2, leased=True), mod_revision=9, create_revision=4)
    lease = KeyValue(key=LAYOUT.lease("c"), value=b'["a", 5, 10, "", 0]', mod_revision=9, lease=77)
    it.load([fence, lease])
    assert it.fence("c", "") == StoredFence(5, 2, True, revision_of(9))
    gone = Event(type=EventEventType.DELETE, kv=KeyValue(key=LAYOUT.lease("c"), mod_revision=9))
    it.receive([gone], 0)
    assert it.fence("c", "").term == 5, "a deletion that is older than the term has ended it"
    gone = Event(type=EventEventType.DELETE, kv=KeyValue(key=LAYOUT.lease("c"), mod_revision=12))
    it.receive([gone], 0)
    assert it.fence("c", "") == StoredFence(6, 0, False, revision_of(9))


SEEN = Position("store", "a", revision_of(7))


@pytest.mark.parametrize(
    ("store_id", "timeline", "head", "says"),
    [
        ("other", TIMELINE, HEAD, "expected store id store, got other"),
        (None, TIMELINE, HEAD, "got none"),
        ("store", None, HEAD, "anchor"),
        ("store", TIMELINE, None, "head key is missing"),
        (
            "store",
            Timeline(((revision_of(3), "a"),)),
            HEAD._replace(revision=revision_of(6, 127)),
            f"is at revision {revision_of(6, 127)}",
        ),
        ("store", Timeline(((revision_of(3), "a"), (revision_of(7), "c"))), HEAD, "not in this history"),
        ("store", Timeline(((revision_of(3), "x"), (revision_of(8), "b"))), HEAD, "not in this history"),
    ],
)
def test_another_history_is_detected(
    store_id: str | None, timeline: Timeline | None, head: Head | None, says: str
) -> None:
    check_same_history(SEEN, "store", TIMELINE, HEAD)
    check_same_history(SEEN, "store", Timeline(((revision_of(3), "a"),)), HEAD._replace(revision=revision_of(7)))
    with pytest.raises(OtherHistory, match=says):
        check_same_history(SEEN, store_id, timeline, head)


def test_revision_below_all_known_openings_is_not_another_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its incarnation has been forgotten after many openings. While none is forgotten, it is another history."""
    forgotten = SEEN._replace(session="forgotten", revision=revision_of(3) - 1)
    with pytest.raises(OtherHistory):
        check_same_history(forgotten, "store", TIMELINE, HEAD)
    for module in (_keys, _timeline):
        monkeypatch.setattr(module, "KNOWN_SESSIONS", 1)
    check_same_history(forgotten, "store", TIMELINE, HEAD)
    with pytest.raises(OtherHistory):
        check_same_history(forgotten._replace(revision=revision_of(3)), "store", TIMELINE, HEAD)


def test_same_revision_with_another_commit_is_another_history() -> None:
    it = mirror()
    assert check_standing(it, HEAD)
    assert not check_standing(it, HEAD._replace(revision=revision_of(11)))
    with pytest.raises(OtherHistory):
        check_standing(it, HEAD._replace(nonce=b"another!"))


def test_encoded_names_are_unambiguous() -> None:
    places = [(("g", "k"), ("a/b", "c", "d")), (("g", "k"), ("a", "b/c", "d")), (("g", "k"), ("%2F", "", "ü%"))]
    assert len({LAYOUT.resource(*place) for place in places}) == 3
    for place in places:
        segment, rest = LAYOUT.split(LAYOUT.resource(*place))
        assert (segment, place_of(rest)) == (b"resource", place)
    for scope in (("a/b", ""), ("a", "b/c#1"), ("", "")):
        assert scope_from(LAYOUT.split(LAYOUT.fence(*scope))[1]) == scope
    assert lease_name_from(LAYOUT.split(LAYOUT.lease("a/b#c"))[1]) == "a/b#c"
    under = LAYOUT.owned_by("u")
    assert under.key <= LAYOUT.owned("u", *places[0]) < under.end
    assert not under.key <= LAYOUT.owned("u0", *places[0]) < under.end
    assert checkpoint_value(255) < checkpoint_value(256)


def test_each_revision_has_one_incarnation() -> None:
    revisions = [revision_of(3), revision_of(7, 127), revision_of(8), revision_of(100)]
    assert [TIMELINE.at(revision) for revision in revisions] == ["a", "a", "b", "b"]
    assert TIMELINE.lefts() == {"a": revision_of(7, 127), "b": None}
    written = KeyValue(key=LAYOUT.anchor, value=anchor_value("c", TIMELINE), mod_revision=20)
    assert timeline_from(written) == Timeline((*TIMELINE.eras, (revision_of(20), "c")))
