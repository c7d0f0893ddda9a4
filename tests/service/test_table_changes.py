"""The changes that a Write may make to a stored resource: one row for each state and change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headway.errors import HeadwayError
from headway.resource import DELETION_TIMESTAMP, FINALIZERS, pb
from tests.helpers.calls import Calls
from tests.helpers.declared import NOTE, NOTE_V2, ULID, a_note, a_status, an_id, id_of
from tests.helpers.service_errors import status_of
from tests.helpers.verb_answers import Cell, Difference, expected_answer
from tests.service.conftest import TABLE_PLACES

NORMAL, HELD, WITH_STATUS, OWNED = "normal", "normal, finalizers", "normal, with a status", "normal, with an owner"
MARKED, BARE = "marked, finalizers", "marked, no finalizers"
STORED = {"colour": "red"}
MARK = "2024-02-02T10:00:00Z"
OK, INVALID = "ok", "INVALID_ARGUMENT"

Change = Callable[[pb.Resource], pb.Resource]


def a_write(text: str = "", *, drop: str = "", **metadata: str) -> Change:
    """Return a change to the data or metadata that keeps the version, so that the write replaces all metadata."""

    def change(stored: pb.Resource) -> pb.Resource:
        kept = {**stored.metadata, **metadata}
        kept.pop(drop, None)
        return a_note("one", text, version=stored.version, metadata=kept, owner=stored.owner)

    return change


def a_blanket_write(text: str = "", **metadata: str) -> Change:
    """Return a change without a version. Reserved keys are absent unless they are passed."""

    def change(stored: pb.Resource) -> pb.Resource:
        return a_note("one", text, metadata={**STORED, **metadata}, owner=stored.owner)

    return change


def with_owner(owner: pb.Id | None) -> Change:
    return lambda stored: a_note("one", version=stored.version, metadata=stored.metadata, owner=owner)


def with_status(status: dict[str, pb.Status] | None) -> Change:
    return lambda stored: a_note("one", metadata=STORED, status=stored.status if status is None else status)


def as_version_2(stored: pb.Resource) -> pb.Resource:
    return a_note("one", type=NOTE_V2, metadata=stored.metadata)


TIME = "readers expect the mark to be a time"
FROZEN = "a marked resource without finalizers can only be deleted"

# Each row has the state, the change in words, the change, and the expected outcome.
ROWS: list[tuple[str, str, Change, Cell]] = [
    (NORMAL, "data", a_write("changed"), OK),
    (NORMAL, "metadata", a_write(colour="blue"), OK),
    (NORMAL, "metadata removed", a_write(drop="colour"), OK),
    (NORMAL, "nothing", a_write(), OK),
    (NORMAL, "nothing, without a version", a_blanket_write(), OK),
    (NORMAL, "a status added", with_status({"mine": a_status()}), INVALID),
    (NORMAL, "an owner added", with_owner(an_id("boss")), INVALID),
    (NORMAL, "the group version", as_version_2, OK),
    (WITH_STATUS, "nothing, without a status", a_blanket_write(), OK),
    (WITH_STATUS, "nothing, with the stored status", with_status(None), OK),
    (WITH_STATUS, "another status", with_status({"mine": a_status(ULID, "other")}), INVALID),
    (WITH_STATUS, "another key of status", with_status({"theirs": a_status()}), INVALID),
    (OWNED, "the same owner without its uid", with_owner(an_id("boss")), OK),
    (OWNED, "the owner removed", with_owner(None), INVALID),
    (OWNED, "another owner", with_owner(an_id("other")), INVALID),
    (OWNED, "another incarnation of the owner", with_owner(an_id("boss", uid=ULID)), INVALID),
    (HELD, "a finalizer added", a_write(finalizers="a b c"), OK),
    (HELD, "finalizers removed", a_write(drop=FINALIZERS), OK),
    (HELD, "finalizers not mentioned, without a version", a_blanket_write("changed"), OK),
    (HELD, "the mark added", a_write(deletionTimestamp=MARK), OK),
    (
        HELD,
        "the mark added, but not a time",
        a_write(deletionTimestamp="soon"),
        Difference(INVALID, OK, TIME),
    ),
    (HELD, "the mark added, with data", a_write("changed", deletionTimestamp=MARK), INVALID),
    (HELD, "the mark added, with metadata", a_write(deletionTimestamp=MARK, colour="blue"), INVALID),
    (HELD, "the mark added, with a finalizer", a_write(deletionTimestamp=MARK, finalizers="a b c"), INVALID),
    (MARKED, "one finalizer removed", a_write(finalizers="a"), OK),
    (MARKED, "all finalizers removed", a_write(drop=FINALIZERS), OK),
    (MARKED, "one finalizer removed, without a version", a_blanket_write(finalizers="a"), OK),
    (MARKED, "nothing", a_write(), INVALID),
    (MARKED, "nothing, without a version", a_blanket_write(), INVALID),
    (MARKED, "data", a_write("changed"), INVALID),
    (MARKED, "data, and a finalizer removed", a_write("changed", finalizers="a"), INVALID),
    (MARKED, "other metadata", a_write(colour="blue"), INVALID),
    (MARKED, "other metadata, and a finalizer removed", a_write(colour="blue", finalizers="a"), INVALID),
    (MARKED, "a finalizer added", a_write(finalizers="a b c"), INVALID),
    (MARKED, "one finalizer replaced by another", a_write(finalizers="a c"), INVALID),
    (MARKED, "the mark removed", a_write(drop=DELETION_TIMESTAMP), INVALID),
    (MARKED, "the mark changed", a_write(deletionTimestamp=MARK), INVALID),
    (MARKED, "the group version", as_version_2, INVALID),
    (BARE, "nothing", a_write(), INVALID),
    (BARE, "data", a_write("changed"), Difference(INVALID, OK, FROZEN)),
    (BARE, "metadata", a_write(colour="blue"), Difference(INVALID, OK, FROZEN)),
    (BARE, "the mark removed", a_write(drop=DELETION_TIMESTAMP), Difference(INVALID, OK, FROZEN)),
]


async def stored_as(calls: Calls, state: str) -> pb.Resource:
    """Store a resource and bring it into a state."""
    owner = None
    if state == OWNED:
        owner = (await calls.stored(a_note("boss"))).id
        await calls.write(a_note("other"))
    held = {FINALIZERS: "a b"} if state in (HELD, MARKED, BARE) else {}
    stored = await calls.stored(a_note(metadata={**STORED, **held}, owner=owner))
    if state == WITH_STATUS:
        await calls.write_status(id_of(stored), a_status())
    if state in (MARKED, BARE):
        await calls.delete(an_id())
    if state == BARE:
        await calls.write(a_note(metadata={**STORED, FINALIZERS: ""}))
    found = (await calls.read(an_id())).resource
    assert found is not None
    return found


def params() -> list[Any]:
    return [pytest.param(state, change, cell, id=f"{state}: {words}") for state, words, change, cell in ROWS]


@pytest.mark.parametrize("anywhere", TABLE_PLACES, indirect=True)
@pytest.mark.parametrize(("state", "change", "cell"), params())
async def test_change_is_accepted_or_refused_as_in_the_table(
    anywhere: Calls, state: str, change: Change, cell: Cell
) -> None:
    """An accepted change has a new version and generation in the same incarnation. A refused change stores nothing."""
    before = await stored_as(anywhere, state)
    written = change(before)
    version_2 = written.id is not None and written.id.type is not None and written.id.type.group_version == "v2"
    try:
        await anywhere.write(written)
        answer = OK
    except HeadwayError as error:
        answer = status_of(error).name
    assert answer == expected_answer(cell)
    after = (await anywhere.read(an_id(type=NOTE_V2 if version_2 and answer == OK else NOTE))).resource
    assert after is not None
    if answer != OK:
        assert after == before
        return
    assert after.generation > before.generation
    assert int(after.version) > int(before.version)
    assert id_of(after).uid == id_of(before).uid
    assert (after.owner, after.status) == (before.owner, before.status)
    for key in (FINALIZERS, DELETION_TIMESTAMP):
        # A write without a version keeps the metadata that it doesn't mention.
        if key in before.metadata and not written.version and key not in written.metadata:
            assert after.metadata[key] == before.metadata[key]
