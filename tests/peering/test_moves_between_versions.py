"""Originals that move to another version of their kind, which the importing side may refuse: no copy is lost."""

from __future__ import annotations

import pytest

from headway.peering import PeerLimits
from headway.peering.stream import Copying, Exported
from headway.resource import pb
from tests.peering.stream_kit import OTHERS, TEAM, TEAM2, TEAMS, TEAMS2, Importing, Origin, Stream, originals, typed

BOTH = (TEAMS, TEAMS2)
BAD, HUGE = "bad", "x" * 900


def check(resource: pb.Resource) -> str | None:
    """Refuse bad content."""
    return "bad" if resource.data is not None and resource.data.value == b"bad" else None


def opened(origin: Origin, store: Importing, *, refused: tuple[Exported, ...] = (), compacted: int = 0) -> Stream:
    """Open a stream of both versions, whose receiver refuses these exports as a whole."""
    return Stream(
        origin,
        store,
        exports=BOTH,
        check=check,
        unknown=lambda each: "not registered" if each in refused else None,
        limits=PeerLimits(batch=2, resource_size=800),
        compacted=compacted,
    )


@pytest.mark.parametrize("content", [BAD, HUGE])
def test_copy_stays_when_its_original_moves_to_a_version_that_is_refused(
    content: str, origin: Origin, store: Importing
) -> None:
    stream = opened(origin, store)
    stream.run()
    before = store.copies
    origin.commit(TEAM2, ada=content)
    stream.run()
    assert store.copies == before
    assert [(id.type, id.name) for id in stream.receiver.refused] == [(TEAM2, "ada")]
    origin.commit(ada="2")
    stream.later()
    assert store.copies == originals(origin.now)
    assert stream.receiver.refused == {}
    origin.commit(TEAM, ada=content)
    origin.commit(ada=None)
    stream.later()
    assert store.copies == originals(origin.now)


def test_copy_stays_when_its_refused_original_has_moved_while_no_stream_was_open(
    origin: Origin, store: Importing
) -> None:
    """It is asked for again as the old version, of which the peer knows nothing any longer."""
    opened(origin, store).run()
    before = [each.uid for each in opened(origin, store).copies._copies.values()]
    origin.commit(ada=BAD)
    opened(origin, store).run()
    origin.commit(TEAM2, ada="2")
    stream = opened(origin, store)
    stream.run()
    assert store.copies == originals(origin.now)
    assert [each.uid for each in stream.copies._copies.values()] == before
    assert stream.receiver.refused == {}


def test_refusal_of_the_former_version_ends_with_a_snapshot(origin: Origin, store: Importing) -> None:
    opened(origin, store).run()
    origin.commit(ada=BAD)
    opened(origin, store).run()
    origin.commit(TEAM2, ada=BAD)
    stream = opened(origin, store, compacted=100)
    stream.run()
    assert [id.type for id in stream.receiver.refused] == [TEAM2]


@pytest.mark.parametrize("content", ["2", BAD, HUGE])
def test_copy_stays_when_its_original_moves_amid_a_snapshot(content: str, origin: Origin, store: Importing) -> None:
    """The deletion of the old version and the new one arrive in batches of their own."""
    opened(origin, store).run()
    before = store.copies["ada"]
    stream = opened(origin, store, compacted=100)
    while not any(each.batch is not None for each in stream.sent):
        assert any([stream.request(), stream.send(), stream.receive(), stream.read()])
    origin.commit(TEAM2, eve="2")
    origin.commit(TEAM2, ada=content)
    while any([stream.request(), stream.send(), stream.receive(), stream.read()]):
        assert store.copies["ada"][0] == before[0]
    assert store.copies == {**originals(origin.now), **({} if content == "2" else {"ada": before})}
    origin.commit(ada="3")
    stream.later()
    assert store.copies == originals(origin.now)


def test_copy_stays_while_its_original_may_have_moved_to_a_version_that_is_refused_as_a_whole(
    origin: Origin, store: Importing
) -> None:
    stream = opened(origin, store, refused=(TEAMS2,))
    stream.run()
    before = store.copies
    origin.commit(TEAM2, ada="2")
    stream.run()
    assert store.copies == before
    for compacted in (0, 100):
        opened(origin, store, refused=(TEAMS2,), compacted=compacted).run()
        assert store.copies == before
    opened(origin, store).run()
    assert store.copies == originals(origin.now)


@pytest.mark.parametrize("reconnects", [True, False])
@pytest.mark.parametrize("compacted", [0, 100])
def test_copy_without_an_original_goes_once_no_version_of_its_kind_is_refused(
    compacted: int, reconnects: bool, origin: Origin, store: Importing
) -> None:
    """Until then, nothing showed whether the original was deleted or had moved."""
    stream = opened(origin, store, refused=(TEAMS2,))
    stream.run()
    origin.commit(ada=None)
    if compacted:
        stream = opened(origin, store, refused=(TEAMS2,), compacted=compacted)
    else:
        origin.commit(ben="2")
    stream.run()
    assert "ada" in store.copies
    if reconnects:
        Stream(origin, store).run()
    else:
        stream.sender.offer((TEAMS,))
        stream.run()
    assert store.copies == originals(origin.now)


@pytest.mark.parametrize("content", [BAD, HUGE])
def test_refused_resource_of_a_rolled_back_store_is_copied_at_any_version(
    content: str, origin: Origin, store: Importing
) -> None:
    """Its last copy stays, and has a version that the rolled back store reaches much later."""
    first = origin.revision
    for number in range(8):
        origin.commit(ada=str(number), ben=str(number))
    opened(origin, store).run()
    origin.roll_back(first)
    origin.commit(ada=content, ben=content)
    stream = opened(origin, store)
    stream.receiver.accept("s2")
    stream.run()
    assert store.copies["ada"][2] == store.copies["ben"][2] == "7"
    if content == HUGE:
        stream = opened(origin, store)
    origin.commit(ada="new", ben=None)
    stream.later()
    assert store.copies == originals(origin.now)


def test_copies_of_a_refused_export_follow_a_rolled_back_store_once_it_is_received(
    origin: Origin, store: Importing
) -> None:
    first = origin.revision
    for number in range(8):
        origin.commit(ada=str(number))
    opened(origin, store).run()
    origin.roll_back(first)
    origin.commit(ada="new")
    stream = opened(origin, store, refused=BOTH)
    stream.receiver.accept("s2")
    stream.run()
    assert store.copies["ada"][2] == "7"
    opened(origin, store).run()
    assert store.copies == originals(origin.now)


@pytest.mark.parametrize("compacted", [0, 100])
def test_copy_of_a_replaced_store_follows_after_its_refused_original_has_moved(
    compacted: int, origin: Origin, store: Importing
) -> None:
    """The move ends the refusal, but the copy is still of the store before, whose versions are higher."""
    stream = replaced(origin, store, ada=BAD)
    other = stream.origin
    other.commit(TEAM2, ada="two")
    stream.later()
    assert store.copies["ada"][2] == "7"
    if compacted:
        stream = opened(other, store, compacted=compacted)
    else:
        other.commit(TEAM, ada="back")
    stream.later()
    assert store.copies["ada"] == originals(other.now)["ada"]


@pytest.mark.parametrize("reconnects", [True, False])
def test_spared_copy_of_a_replaced_store_follows_once_its_original_has_moved_back(
    reconnects: bool, origin: Origin, store: Importing
) -> None:
    stream = replaced(origin, store)
    other = stream.origin
    other.commit(TEAM2, ada="two")
    stream.later()
    assert store.copies["ada"][2] == "7"
    if reconnects:
        stream = opened(other, store, refused=(TEAMS2,))
        stream.run()
    other.commit(TEAM, ada="back")
    stream.later()
    assert store.copies["ada"] == originals(other.now)["ada"]


def test_copy_of_a_replaced_store_stays_when_its_refused_original_is_asked_for_and_has_moved(
    origin: Origin, store: Importing
) -> None:
    """A deletion without a revision only ends the refusal."""
    other = replaced(origin, store, ada=BAD).origin
    other.commit(TEAM2, ada=BAD)
    stream = opened(other, store)
    stream.run()
    assert store.copies["ada"][2] == "7"
    other.commit(ada="new")
    stream.later()
    assert store.copies["ada"] == originals(other.now)["ada"]


def test_copies_are_overridden_once_although_one_of_a_rolled_back_store_is_kept(
    origin: Origin, store: Importing
) -> None:
    first = origin.revision
    for number in range(8):
        origin.commit(ada=str(number), ben=str(number))
    opened(origin, store).run()
    origin.roll_back(first)
    origin.commit(ben="new")
    origin.commit(TEAM2, ada="two")
    stream = opened(origin, store, refused=(TEAMS2,))
    stream.receiver.accept("s2")
    stream.run()
    assert (store.copies["ada"][2], store.copies["ben"][2]) == ("7", "new")
    before = store.revision
    stream.sender.offer((TEAMS2, TEAMS, OTHERS))
    stream.run()
    assert [each.complete is not None for each in stream.sent].count(True) == 2
    assert store.revision == before


def test_replacement_ends_with_the_removal_of_the_last_copy_of_the_store_before(
    origin: Origin, store: Importing
) -> None:
    """A later snapshot overrides no equal copies."""
    replaced(origin, store, refused=())
    assert store.state is not None
    assert not store.state.replaced


def test_deletion_of_what_has_no_copy_spares_nothing(origin: Origin, store: Importing) -> None:
    """Streams resume although another version of the kind is refused."""
    stream = opened(origin, store, refused=(TEAMS2,))
    origin.commit(fay=BAD)
    stream.run()
    origin.commit(fay=None)
    stream.later()
    assert not stream.copies.spared


def test_repeated_subscription_gets_a_feed_of_its_own(origin: Origin, store: Importing) -> None:
    """The receiver ignores the feeds of the subscription before. This one equals it, because copies are spared."""
    opened(origin, store, refused=(TEAMS2,)).run()
    origin.commit(ada=None)
    opened(origin, store, refused=(TEAMS2,), compacted=100).run()
    stream = opened(origin, store, refused=(TEAMS2,))
    stream.run()
    assert "ada" in store.copies
    stream.sender.offer((TEAMS,))
    stream.run()
    sent = [each.subscribe for each in stream.requests if each.subscribe is not None and each.subscribe.number]
    assert [(each.exports, each.resume_after) for each in sent] == [(sent[0].exports, sent[0].resume_after)] * 2
    assert stream.receiver.copying is Copying.CURRENT
    assert store.copies == originals(origin.now)


def replaced(origin: Origin, store: Importing, *, refused: tuple[Exported, ...] = (TEAMS2,), **teams: str) -> Stream:
    """Copy a store, and then another one with lower revisions, which has these teams besides ben."""
    for number in range(8):
        origin.commit(ada=str(number), ben=str(number))
    opened(origin, store).run()
    other = Origin("other")
    other.commit(ben="new", **teams)
    stream = opened(other, store, refused=refused)
    stream.run()
    return stream


def test_origin_moves_resources_between_versions(origin: Origin) -> None:
    """The other tests rely on it."""
    origin.commit(TEAM2, ada="2")
    assert [typed(each) for each in origin.now.values()].count(TEAM2) == 1
    _, changes = origin.log[-1]
    assert [(typed(each.resource), each.deleted) for each in changes] == [(TEAM, True), (TEAM2, False)]
