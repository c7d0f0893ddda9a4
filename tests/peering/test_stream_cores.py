"""The sender and the receiver of a peer stream, together: what is copied, sent again, resumed and removed."""

from __future__ import annotations

import pytest

from headway.peering.stream import Change, Copies, Copying, copy_of
from headway.resource import pb, resource_id
from tests.peering.stream_kit import OTHERS, PARTITION, TEAMS, Importing, Origin, Stream, copied, originals, team


def test_copies_follow_every_change(origin: Origin, store: Importing) -> None:
    stream = copied(origin, store)
    origin.commit(ada="2", fay="1")
    origin.commit(ben=None)
    stream.run()
    assert store.copies == originals(origin.now)


def test_r_reconnect_resumes_by_position_without_a_snapshot(origin: Origin, store: Importing) -> None:
    """The weakness of R.3: Consul's stream cannot resume."""
    copied(origin, store)
    origin.commit(ada="2")
    again = Stream(origin, store)
    again.run()
    assert [len(each.batch.events) for each in again.sent if each.batch is not None] == [1]
    assert store.copies == originals(origin.now)


def test_r_receiver_knows_when_the_first_copy_is_whole(origin: Origin, store: Importing) -> None:
    """The weakness of R.3: Consul's receiver cannot distinguish a partial from a complete first copy."""
    stream = Stream(origin, store)
    seen = set()
    while any([stream.request(), stream.send(), stream.receive(), stream.read()]):
        seen.add(stream.receiver.copying)
        if stream.receiver.copying is Copying.CURRENT:
            assert store.copies == originals(origin.now)
    assert seen == {Copying.WAITING, Copying.SNAPSHOT, Copying.CURRENT}


def test_interrupted_snapshot_removes_no_copy(origin: Origin, store: Importing) -> None:
    copied(origin, store)
    origin.commit(ada=None, gus="1")
    stream = Stream(origin, store, compacted=100)
    while not (stream.receiver.copying is Copying.SNAPSHOT and "gus" in store.copies):
        assert any([stream.request(), stream.send(), stream.receive(), stream.read()])
    assert "ada" in store.copies
    again = Stream(origin, store)
    assert again.receiver.position is None
    again.run()
    assert store.copies == originals(origin.now)


def test_snapshot_with_another_count_removes_no_copy(origin: Origin, store: Importing) -> None:
    """A snapshot that lost a resource on the way must not remove its copy."""
    copied(origin, store)
    stream = Stream(origin, store, compacted=100)
    while any([stream.request(), stream.send(), stream.read()]) or stream.to_receiver:
        for response in stream.to_receiver:
            if response.batch is not None and response.feed == 1:
                response.batch.events = [
                    each
                    for each in response.batch.events
                    if each.upsert is None or each.upsert.id.name != "ada"  # type: ignore[union-attr]
                ]
        stream.receive()
    assert "ada" in store.copies
    assert "4 resources arrived, and the snapshot has 5" in stream.receiver.held
    stream.later()
    assert stream.receiver.copying is Copying.CURRENT
    assert store.copies == originals(origin.now)


def test_r6_deletion_is_by_state_after_the_end_of_a_snapshot(origin: Origin, store: Importing) -> None:
    copied(origin, store)
    origin.commit(ada=None, ben=None)
    Stream(origin, store, compacted=100).run()
    assert store.copies == originals(origin.now)


def test_r6_empty_set_removes_every_copy(origin: Origin, store: Importing) -> None:
    stream = copied(origin, store)
    stream.sender.offer(())
    stream.run()
    assert store.copies == {}


def test_r7_unchanged_content_is_not_sent_again(origin: Origin, store: Importing) -> None:
    stream = copied(origin, store)
    sent = len(stream.sent)
    origin.commit(ada="1")
    stream.run()
    assert [each for each in stream.sent[sent:] if each.batch is not None] == []
    origin.commit(ada="2")
    stream.run()
    assert store.copies["ada"] == originals(origin.now)["ada"]


def test_r7_unchanged_exports_are_not_sent_again(origin: Origin, store: Importing) -> None:
    stream = copied(origin, store)
    sent = len(stream.sent)
    stream.sender.offer((TEAMS, TEAMS))
    stream.run()
    assert stream.sent[sent:] == []


def test_r6_withdrawn_export_removes_its_copies(origin: Origin, store: Importing) -> None:
    stream = copied(origin, store)
    stream.sender.offer((TEAMS, OTHERS))
    stream.run()
    assert store.copies == originals(origin.now)
    stream.sender.offer((OTHERS,))
    stream.run()
    assert store.copies == {}


def test_export_that_is_withdrawn_and_restored_is_copied_again(origin: Origin, store: Importing) -> None:
    """The peer restores it before it sends the resources without it, so its position has the same selection again."""
    stream = copied(origin, store)
    stream.sender.offer((OTHERS,))
    stream.send()
    stream.receive()
    assert store.copies == {}
    stream.sender.offer((TEAMS,))
    stream.run()
    assert store.copies == originals(origin.now)


def test_export_that_is_restored_after_a_crash_amid_its_withdrawal_is_copied_again() -> None:
    origin, store = Origin(), Importing()
    origin.commit(**{f"team{number}": "1" for number in range(40)})
    stream = copied(origin, store)
    stream.sender.offer((OTHERS,))
    stream.send()
    stream.receive(commits=1)
    assert 0 < len(store.copies) < 40
    Stream(origin, store).run()
    assert store.copies == originals(origin.now)


def test_withdrawal_of_an_export_that_is_refused_here_is_undone_by_a_snapshot(origin: Origin, store: Importing) -> None:
    """Here the subscription does not change, and a later program receives the export."""
    copied(origin, store)
    stream = Stream(
        origin, store, exports=(OTHERS, TEAMS), unknown=lambda each: "not registered" if each == TEAMS else None
    )
    while stream.receiver.exports is None:
        assert any([stream.request(), stream.send(), stream.receive()])
    stream.sender.offer((OTHERS,))
    while store.copies:
        assert any([stream.request(), stream.send(), stream.receive()])
    Stream(origin, store).run()
    assert store.copies == originals(origin.now)


def test_position_is_whole_again_after_the_withdrawal_of_an_export_that_is_refused_here(
    origin: Origin, store: Importing
) -> None:
    copied(origin, store)
    stream = Stream(
        origin, store, exports=(OTHERS, TEAMS), unknown=lambda each: "not registered" if each == TEAMS else None
    )
    stream.run()
    assert store.copies == originals(origin.now)
    stream.sender.offer((OTHERS,))
    stream.run()
    assert store.copies == {}
    assert store.state is not None
    assert store.state.complete
    assert stream.receiver.copying is Copying.CURRENT


def test_recreated_original_gets_another_incarnation(origin: Origin, store: Importing) -> None:
    copied(origin, store)
    before = {key: copy.uid for key, copy in Stream(origin, store).copies._copies.items()}
    origin.commit(ada=None)
    origin.commit(ada="again")
    Stream(origin, store, compacted=100).run()
    after = {key: copy.uid for key, copy in Stream(origin, store).copies._copies.items()}
    assert store.copies == originals(origin.now)
    assert [key[1][2] for key in before if before[key] != after[key]] == ["ada"]


def test_snapshot_of_a_server_that_lags_is_refused(origin: Origin, store: Importing) -> None:
    copied(origin, store)
    before = store.copies
    lagging = Origin()
    lagging.commit(old="1")
    stream = Stream(lagging, store, compacted=100)
    stream.sender.offer((TEAMS,))
    lagging.knows = lambda _: True  # type: ignore[method-assign,assignment]
    stream.run()
    assert stream.receiver.copying is Copying.BEHIND
    assert store.copies == before


def test_copies_that_a_stopped_removal_left_follow_another_store_with_lower_versions(
    origin: Origin, store: Importing
) -> None:
    """The position is removed before the copies."""
    for number in range(8):
        origin.commit(ada=str(number), ben=str(number))
    copied(origin, store)
    store.state = None
    other = Origin("other")
    other.commit(ada="new")
    copied(other, store)
    other.commit(ada="newer")
    copied(other, store)


def test_crash_amid_a_replacement_leaves_no_copy_of_the_old_store(origin: Origin, store: Importing) -> None:
    origin.commit(ada="2")
    copied(origin, store)
    restored = Origin("restored")
    restored.revision = 1 << 48
    restored.states[1 << 48] = dict(origin.states[2])
    stream = Stream(restored, store)
    while stream.receiver.copying is not Copying.SNAPSHOT:
        assert any([stream.request(), stream.send(), stream.receive(), stream.read()])
    again = Stream(restored, store)
    assert again.receiver.position is None
    again.run()
    assert store.copies == originals(restored.now)


def test_commit_of_several_messages_is_stored_in_one_commit(origin: Origin, store: Importing) -> None:
    """The messages of a test hold two resources."""
    stream = copied(origin, store)
    before = store.revision
    origin.commit(ada="2", ben="2", cyd="2", dan="2", eve=None)
    stream.run()
    assert store.copies == originals(origin.now)
    assert store.revision == before + 1


def test_added_export_is_subscribed(origin: Origin, store: Importing) -> None:
    stream = Stream(origin, store, exports=(OTHERS,))
    stream.run()
    assert store.copies == {}
    stream.sender.offer((OTHERS, TEAMS))
    stream.run()
    assert store.copies == originals(origin.now)


def test_feed_of_an_earlier_subscription_is_ignored_to_its_end(origin: Origin, store: Importing) -> None:
    """The exports change just before the feed begins, so the peer subscribes again while the feed is on its way."""
    stream = Stream(origin, store)
    while stream.sender.wanted is None:
        assert any([stream.request(), stream.send(), stream.receive()])
    stream.sender.offer((TEAMS, OTHERS))
    while any([stream.send(), stream.read()]):
        pass
    stream.run()
    assert store.copies == originals(origin.now)


def test_withdrawn_export_is_not_sent_from_then_on(origin: Origin, store: Importing) -> None:
    """It ends before the peer has received the new exports."""
    stream = copied(origin, store)
    origin.commit(ada="2")
    stream.read()
    stream.sender.offer((OTHERS,))
    sent = len(stream.sent)
    while any([stream.read(), stream.send()]):
        pass
    assert [each.batch for each in stream.sent[sent:]] == [None]


@pytest.mark.parametrize("replaced", [True, False])
def test_only_another_store_overrides_a_newer_copy(replaced: bool) -> None:
    old = copy_of(
        team("ada", 5, uid="u", data="5"),
        pb.Id(
            uid="here",
            name="ada",
            type=TEAMS.type.message(),
            tenancy=pb.Tenancy(partition=PARTITION, namespace="default"),
        ),
    )
    old.version = "7"
    copies = Copies(PARTITION, 10, lambda: "new")
    copies.load([old])
    if replaced:
        copies.outdate()
    id = resource_id(team("ada", 3).id)
    change = Change(id, copies.place(id), team("ada", 3, uid="u"), 3)
    assert [len(each) for each in copies.plan([change])] == [0, int(replaced)]
