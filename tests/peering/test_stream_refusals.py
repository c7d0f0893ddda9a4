"""The refusals on a peer stream: a type, a resource or a response is refused, and sent again."""

from __future__ import annotations

import pytest

from headway._gen.headway.peering import v1 as wire
from headway.peering import PeerLimits
from headway.peering.stream import Copies, Copying, Exported, cut, sized
from tests.peering.stream_kit import OTHERS, PARTITION, TEAMS, Importing, Origin, Stream, copied, originals, team


def test_r_unknown_type_is_refused_with_its_reason_and_sent_again(origin: Origin, store: Importing) -> None:
    """The weakness of R.3: Consul only counts a NACK. The known export is received anyway."""
    known = False
    stream = Stream(
        origin,
        store,
        exports=(TEAMS, OTHERS),
        unknown=lambda each: None if known or each == TEAMS else "not registered",
    )
    stream.run()
    assert store.copies == originals(origin.now)
    nacks = [each.nack.message for each in stream.requests if each.nack is not None]
    assert nacks == ["staff.v1.Account in default/*: not registered"]
    stream.later(1.5)
    stream.later(1.5)
    assert len([each for each in stream.requests if each.nack is not None]) == 2, "the delays do not grow"
    known = True
    stream.later(60)
    assert stream.receiver.problems == {}
    assert store.copies == originals(origin.now)


def test_copies_of_a_type_unknown_here_stay(origin: Origin, store: Importing) -> None:
    """A program that no longer declares a type must not lose its copies while the peer exports it."""
    copied(origin, store)
    stream = Stream(origin, store, unknown=lambda _: "not registered")
    stream.run()
    assert store.copies == originals(origin.now)


def test_refused_resource_is_sent_again_alone_until_it_is_stored(origin: Origin, store: Importing) -> None:
    bad = {"ben"}
    stream = Stream(origin, store, check=lambda each: "no" if each.id and each.id.name in bad else None)
    stream.run()
    wanted = originals(origin.now)
    assert store.copies == {name: each for name, each in wanted.items() if name != "ben"}
    assert stream.receiver.copying is Copying.CURRENT
    assert list(stream.receiver.refused.values()) == ["no"]
    stream.later(1.5)
    assert "ben" not in store.copies
    bad.clear()
    stream.later(2.5)
    assert store.copies == wanted
    assert stream.receiver.refused == {}
    assert store.state is not None
    assert store.state.refused == []


def test_delay_of_a_resource_that_is_refused_again_grows(origin: Origin, store: Importing) -> None:
    stream = Stream(origin, store, check=lambda each: "no" if each.id and each.id.name == "ben" else None)
    stream.run()

    def refusals() -> int:
        return len([each for each in stream.requests if each.nack is not None])

    counts = []
    for _ in range(16):
        stream.later(1.0)
        counts.append(refusals())
    # After 1, 2, 4 and 8 seconds.
    assert counts == [2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5]


def test_refused_resource_is_remembered_over_streams(origin: Origin, store: Importing) -> None:
    stream = Stream(origin, store, check=lambda each: "no" if each.id and each.id.name == "ben" else None)
    stream.run()
    again = Stream(origin, store)
    again.run()
    assert store.copies == originals(origin.now)


def test_export_that_is_restored_before_the_withdrawal_was_sent_is_copied_on(origin: Origin, store: Importing) -> None:
    """The peer never learns of the withdrawal, so it does not subscribe again."""
    stream = copied(origin, store)
    sent = len(stream.sent)
    stream.sender.offer(())
    stream.sender.offer((TEAMS,))
    origin.commit(ada="2")
    stream.run()
    assert store.copies == originals(origin.now)
    assert not any(each.exports for each in stream.sent[sent:])


def test_export_of_a_partly_outdated_subscription_is_copied_once_it_is_restored(
    origin: Origin, store: Importing
) -> None:
    """Another export is withdrawn and restored while the peer's subscription to both is on its way."""
    stream = Stream(origin, store, exports=(OTHERS, TEAMS))
    while not any(each.subject == wire.Subject.RESOURCES for each in stream.to_sender):
        assert any([stream.request(), stream.send(), stream.receive()])
    stream.sender.offer((OTHERS,))
    while stream.request():
        pass
    stream.sender.offer((OTHERS, TEAMS))
    stream.run()
    assert store.copies == originals(origin.now)


@pytest.mark.parametrize("ends", ["source fails", "restored", "refused"])
def test_resource_that_waits_to_be_sent_again_is_sent_in_the_next_feed(
    ends: str, origin: Origin, store: Importing
) -> None:
    bad = {"ben"}
    stream = Stream(origin, store, check=lambda each: "no" if each.id and each.id.name in bad else None)
    stream.run()
    bad.clear()
    stream.time += 1.5
    stream.progress()
    assert stream.send()
    assert stream.again()
    if ends == "source fails":
        stream.sender.interrupt(stream.feed, stream.time + 1)
    elif ends == "restored":
        stream.sender.offer(())
        stream.sender.offer((TEAMS,))
    else:
        stream.to_receiver[0].progress = None
        stream.run()
    stream.later()
    assert store.copies == originals(origin.now)
    assert stream.receiver.refused == {}


def test_nothing_is_sent_again_before_the_feed_begins(origin: Origin, store: Importing) -> None:
    """The store may take a while to begin a feed."""
    bad = {"ben"}
    stream = Stream(origin, store, check=lambda each: "no" if each.id and each.id.name in bad else None)
    stream.run()
    bad.clear()
    stream.sender.offer((OTHERS, TEAMS))
    while any([stream.request(), stream.send(), stream.receive(), stream.again()]):
        pass
    stream.run()
    assert store.copies == originals(origin.now)


def test_refusal_of_a_resource_ends_when_it_is_deleted(origin: Origin, store: Importing) -> None:
    stream = Stream(origin, store, check=lambda each: "no" if each.id and each.id.name == "ben" else None)
    stream.run()
    origin.commit(ben=None)
    again = Stream(origin, store, compacted=100)
    again.run()
    assert again.receiver.refused == {}


def test_last_copy_of_a_refused_state_stays(origin: Origin, store: Importing) -> None:
    copied(origin, store)
    before = store.copies["ben"]
    origin.commit(ben="bad", ada="2")
    for compacted in (0, 100):
        stream = Stream(
            origin,
            store,
            compacted=compacted,
            check=lambda each: "no" if each.data and each.data.value == b"bad" else None,
        )
        stream.run()
        assert store.copies["ben"] == before
        assert store.copies["ada"] == originals(origin.now)["ada"]


def test_original_of_another_partition_with_the_same_name_is_refused_until_the_first_is_gone() -> None:
    copies = Copies(PARTITION, 10, lambda: "u1")
    copies.load([])
    origin, store = Origin(), Importing()
    origin.commit(ada="1")
    everywhere = Exported(TEAMS.type, "*", "*")
    stream = Stream(origin, store, exports=(everywhere,))
    stream.run()
    other = team("ada", 3, partition="west", data="other")
    origin.revision = 3
    origin.states[3] = {**origin.states[2], ("west", "default", "ada"): other}
    again = Stream(origin, store, exports=(everywhere,), compacted=100)
    again.run()
    assert store.copies["ada"][2] == "1"
    assert [str(id) for id in again.receiver.refused] == ["Team west/default/ada"]
    origin.commit(ada=None)
    again.later()
    assert store.copies["ada"][2] == "other"


def test_r_window_bounds_what_is_not_acknowledged(origin: Origin, store: Importing) -> None:
    """The weakness of R.3: Consul has no flow control."""
    for number in range(50):
        origin.commit(**{f"t{number}": "1"})
    stream = Stream(origin, store, limits=PeerLimits(batch=2, window=4))
    for _ in range(5):
        while any([stream.request(), stream.send(), stream.read()]):
            pass
        assert len(stream.to_receiver) <= 4
        while stream.receive():
            pass
    stream.run()
    assert store.copies == originals(origin.now)


def test_feed_resumes_after_the_last_acknowledged_commit(origin: Origin, store: Importing) -> None:
    stream = copied(origin, store)
    origin.commit(ada="2")
    stream.run()
    origin.commit(ben="2")
    stream.read()
    stream.send()
    stream.to_receiver[0].batch = None
    sent = len(stream.sent)
    stream.later(0.5)
    assert [each.nack.message for each in stream.requests if each.nack is not None] == [
        "the response has no payload that is known here"
    ]
    assert stream.sent[sent:] == []
    stream.later(1)
    assert [len(each.batch.events) for each in stream.sent[sent:] if each.batch is not None] == [1]
    assert store.copies == originals(origin.now)


def test_refused_snapshot_is_begun_again_although_changes_are_known(origin: Origin, store: Importing) -> None:
    """The receiver has no whole state to resume from, once it has begun to store a snapshot."""
    copied(origin, store)
    origin.commit(ada="2")
    stream = Stream(origin, store, compacted=100)
    while not any(each.complete is not None for each in stream.to_receiver):
        assert stream.request() or stream.send() or stream.read() or stream.receive()
    stream.to_receiver[-1].complete.count += 1  # type: ignore[union-attr]
    stream.compacted = 0
    stream.run()
    stream.later()
    assert stream.receiver.copying is Copying.CURRENT
    assert store.copies == originals(origin.now)


def test_r_resource_that_no_message_can_hold_is_named_on_both_sides(origin: Origin, store: Importing) -> None:
    """The weakness of R.3: Consul ignores the errors of sending a resource."""
    stream = Stream(origin, store, limits=PeerLimits(resource_size=1000))
    origin.commit(ada="x" * 900)
    stream.run()
    assert [str(id) for id in stream.receiver.refused] == ["Team ada"]
    assert list(stream.receiver.refused.values()) == ["not sent: it has about 1100 bytes, and 1000 are possible"]
    assert [each[:27] for each in stream.sender.refusals()] == ["Team ada: not sent: it has "]
    assert sorted(store.copies) == ["ben", "cyd", "dan", "eve"]
    origin.commit(ada="1")
    stream.run()
    assert stream.sender.refusals() == []
    assert stream.receiver.refused == {}
    assert store.copies == originals(origin.now)


def test_last_copy_of_a_resource_that_became_too_large_stays(origin: Origin, store: Importing) -> None:
    """Neither a snapshot nor a reconnect takes the state of being withheld for a deletion."""
    limits = PeerLimits(batch=2, resource_size=1000)
    copied(origin, store)
    before = store.copies["ada"]
    large = origin.commit(ada="x" * 900, ben="2")
    for compacted in (0, large + 1, 0):
        stream = Stream(origin, store, limits=limits, compacted=compacted)
        stream.run()
        assert stream.receiver.copying is Copying.CURRENT
        assert store.copies["ada"] == before
        assert store.copies["ben"] == originals(origin.now)["ben"]
        assert [str(id) for id in stream.receiver.refused] == ["Team ada"]
        assert [each.partition(":")[0] for each in stream.sender.refusals()] == ["Team ada"]
    # A failure of the source begins another feed of the same stream, after the same position.
    stream.sender.interrupt(stream.feed, stream.time)
    stream.later()
    assert [each.partition(":")[0] for each in stream.sender.refusals()] == ["Team ada"]
    origin.commit(ada=None)
    stream.run()
    assert "ada" not in store.copies
    assert (stream.sender.refusals(), stream.receiver.refused) == ([], {})


def test_resource_that_was_too_large_on_an_earlier_stream_is_copied_once_it_fits(
    origin: Origin, store: Importing
) -> None:
    stream = Stream(origin, store, limits=PeerLimits(resource_size=1000))
    origin.commit(ada="x" * 900)
    stream.run()
    again = Stream(origin, store)
    again.run()
    assert store.copies == originals(origin.now)
    assert again.receiver.refused == {}


def test_messages_are_bounded_by_size_and_fields() -> None:
    """A server decodes a bounded number of fields, and a bounded size."""
    small = wire.Event(upsert=team("ada", 1))
    large = wire.Event(upsert=team("ada", 1, data="x" * 60_000))
    rich = team("ada", 1)
    rich.metadata = {str(number): "" for number in range(1000)}
    limits = PeerLimits()

    def lengths(events: list[wire.Event]) -> list[int]:
        return [len(part) for part, _ in cut([sized(each) for each in events], limits)]

    assert lengths([small] * 500) == [240, 240, 20]
    assert lengths([large] * 3) == [1, 1, 1]
    assert lengths([wire.Event(upsert=rich)] * 5) == [2, 2, 1]
