"""The stored events of a resource: equal ones are merged, the latest are kept, and nothing else is accepted."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest

from headway.protobuf import copy_message, decode, encode
from headway.resource import (
    EVENT,
    MAX_NAME,
    MAX_TEXT,
    MOST_EVENTS,
    Entry,
    Event,
    Resource,
    ResourceId,
    TypeName,
    event_id,
    merged_events,
    name_problem,
)

BEGIN = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
NOW = BEGIN + datetime.timedelta(hours=1)
TEAM = ResourceId(TypeName("staff", "v1", "Team"), "core", "default", "blue", "01UID")


def entry(reason: str, at: int, text: str = "", *, count: int = 1, warning: bool = False) -> Entry:
    when = BEGIN + datetime.timedelta(seconds=at)
    return Entry(
        controller="staff/teams", reason=reason, text=text, count=count, warning=warning, first=when, last=when
    )


def test_equal_events_are_one_with_their_sum_and_both_times() -> None:
    """What has happened again moves to the end."""
    kept, dropped = merged_events([entry("A", 1, count=2), entry("B", 2)], [entry("A", 5), entry("A", 4)], NOW)
    assert [(each.reason, each.count) for each in kept] == [("B", 1), ("A", 4)]
    assert (kept[1].first, kept[1].last) == (
        BEGIN + datetime.timedelta(seconds=1),
        BEGIN + datetime.timedelta(seconds=5),
    )
    assert dropped == 0


@pytest.mark.parametrize(
    "other",
    [entry("A", 2, "b"), entry("A", 2, warning=True), entry("B", 2), Entry(controller="x/y", reason="A", count=1)],
)
def test_events_that_differ_in_anything_else_than_time_stay_apart(other: Entry) -> None:
    kept, _ = merged_events([entry("A", 1)], [other], NOW)
    assert len(kept) == 2


def test_merging_changes_neither_of_its_arguments() -> None:
    stored, new = [entry("A", 1)], [entry("A", 2)]
    before = [copy_message(each) for each in (*stored, *new)]
    merged_events(stored, new, NOW)
    assert [*stored, *new] == before


def test_the_latest_are_kept_and_the_oldest_are_counted() -> None:
    """An old event that has happened again is among the latest."""
    stored = [entry(f"R{at}", at) for at in range(MOST_EVENTS)]
    kept, dropped = merged_events(stored, [entry("R0", 100), entry("New", 101), entry("Newer", 102)], NOW)
    assert dropped == 2
    assert [each.reason for each in kept] == [*(f"R{at}" for at in range(3, MOST_EVENTS)), "R0", "New", "Newer"]


def test_events_of_a_clock_that_was_ahead_make_room_for_new_ones() -> None:
    """They have happened before the new ones, and get their time. An event that has waited stays older than others."""
    ahead = [entry(f"R{at}", 7200 + at) for at in range(MOST_EVENTS)]
    kept, dropped = merged_events(ahead, [entry("New", 3590), entry("R5", 3599)], NOW)
    assert dropped == 1
    assert [each.reason for each in kept[-3:]] == ["R19", "New", "R5"]
    assert {each.last for each in kept[:-1]} == {BEGIN + datetime.timedelta(seconds=3590)}
    assert (kept[-1].count, kept[-1].last) == (2, BEGIN + datetime.timedelta(seconds=3599))
    kept, _ = merged_events([entry(f"R{at}", 3000 + at) for at in range(MOST_EVENTS)], [entry("Late", 2000)], NOW)
    assert "Late" not in {each.reason for each in kept}


def test_id_belongs_to_one_incarnation_and_is_a_valid_name() -> None:
    """It is the same for each version of the kind."""
    id = event_id(TEAM._replace(name="a" * 29 + "-" + "b" * 33))
    assert name_problem("name", id.name) is None
    assert len(id.name) <= MAX_NAME
    assert event_id(TEAM).name != event_id(TEAM._replace(uid="01OTHER")).name
    assert event_id(TEAM) == event_id(TEAM._replace(type=TypeName("staff", "v2", "Team")))
    assert (event_id(TEAM).partition, event_id(TEAM).namespace) == ("default", "blue")


@pytest.mark.parametrize(
    ("partition", "namespace", "expected"),
    [("", "", ("default", "default")), ("east", "", ("east", "default")), ("east", "blue", ("east", "blue"))],
)
def test_events_are_in_the_units_of_their_resource_as_far_as_it_has_them(
    partition: str, namespace: str, expected: tuple[str, str]
) -> None:
    id = event_id(TEAM._replace(partition=partition, namespace=namespace))
    assert (id.partition, id.namespace) == expected


def made(
    change: Callable[[Event], None] = lambda _: None,
    *,
    of: ResourceId | None = TEAM,
    name: str = "",
    metadata: dict[str, str] | None = None,
) -> Resource[Event]:
    event = Event(entries=[entry("A", 1)])
    change(event)
    return EVENT.new(name or event_id(TEAM).name, event, namespace="blue", owner=of, metadata=metadata)


def check(event: Resource[Event]) -> None:
    assert EVENT.hooks.validate is not None
    EVENT.hooks.validate(event)


def _too_many(event: Event) -> None:
    event.entries = [entry(f"R{at}", at) for at in range(MOST_EVENTS + 1)]


def _no_word(event: Event) -> None:
    event.entries[0].reason = "two words"


def _too_long(event: Event) -> None:
    event.entries[0].text = "x" * (MAX_TEXT + 1)


def _of_a_newer_program() -> Resource[Event]:
    event = made()
    # Field 99, with almost as many bytes as a request may have.
    event.data = decode(Event, encode(event.data) + b"\x9a\x06\x80\x80\xe0\x01" + b"z" * (3584 << 10))
    return event


def _longest(event: Event) -> None:
    text = "\N{GRINNING FACE}" * MAX_TEXT
    at = event.entries[0].first
    event.entries = [
        Entry(controller=text, reason=f"R{number:063}", text=text, count=2**64 - 1, warning=True, first=at, last=at)
        for number in range(MOST_EVENTS)
    ]


def test_what_the_recorder_stores_is_accepted() -> None:
    check(made())
    check(made(_longest))


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (made(of=None), "owner must be the resource"),
        (made(of=TEAM.without_uid()), "with its uid"),
        (made(of=event_id(TEAM)._replace(uid="01X")), "not be an event itself"),
        (made(name="other"), "must be stored as Event blue/team-core-"),
        (made(_too_many), "at most 20, not 21"),
        (made(_no_word), "one word"),
        (made(_too_long), "at most 1000"),
        (_of_a_newer_program(), "data must have at most 196608 bytes, not 36"),
        (
            made(metadata={"finalizers": "mine"}),
            "finalizers must be empty, not 'mine': events go away with Team blue/core",
        ),
        (made(metadata={"noted": "x" * 5000}), "metadata must have at most 4096 characters, not 5005"),
    ],
)
def test_anything_else_is_refused_with_what_is_right(event: Resource[Event], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        check(event)
