"""Every fact of Consul's streams and limits has a test that is named after it, or a decision that says otherwise.

The facts are about its event publisher (M), `agent/cache` (O), its materialized views (P), its subscribe service (Q)
and its peer streams (R), and about the limits of its servers (H-13, N-7). A fact M-1 has tests named ``test_m1_…``.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).parent
DECISIONS = TESTS.parent / "docs" / "decisions"


class Otherwise(NamedTuple):
    """A fact, or a part of one, that is different here. ``said`` is a text on a page of docs/decisions."""

    page: str
    said: str


FACTS: dict[str, tuple[str, *tuple[Otherwise, ...]]] = {
    "H-13": (
        "the methods of resources are reads or writes of the rate limits",
        Otherwise("network.md", "In Consul, WatchList is a read of its rate limiter (H-13)"),
    ),
    "M-1": (
        "wrong topics are refused: unknown ones, duplicates, and everything without a wildcard",
        Otherwise("streams.md", "publishing to the wildcard subject panics (M-1)"),
    ),
    "M-2": (
        "without a position: a snapshot, its end, then changes",
        Otherwise("streams.md", "an empty topic's snapshot is numbered 1 (M-2)"),
    ),
    "M-3": (
        "a position resumes, or a new snapshot is announced",
        Otherwise("streams.md", "a subscriber resumes only from the very last event (M-3)"),
    ),
    "M-4": (
        "snapshots are shared, and failed ones are not",
        Otherwise("streams.md", "an old timer can evict a newer one (M-4)"),
    ),
    "M-5": (
        "the last subscriber frees what was kept for it",
        Otherwise("streams.md", "the buffer of a subject is freed with its last subscriber"),
        Otherwise("streams.md", "unsubscribing twice has no effect (M-5)"),
    ),
    "M-6": (
        "what one call publishes stays together",
        Otherwise("streams.md", "events without one are dropped (M-5, M-6)"),
    ),
    "M-7": ("shutdown, changed rights and a reset end or renew every subscription",),
    "M-8": ("every subscriber sees one order, that of the calls",),
    "M-9": (
        "what a snapshot contains does not follow it again",
        Otherwise("streams.md", "compared only as far as it is buffered when the subscription begins (M-9)"),
    ),
    "N-7": (
        "requests are limited by rate",
        Otherwise("network.md", "2,048 streams, 50 MB and a ping in 15 seconds for each connection (N-7)"),
    ),
    "O-1": ("what cannot work is an error at once",),
    "O-2": ("the first value comes at once, then only changes",),
    "O-3": ("equal questions share a fetch, and each handle has its correlation id",),
    "O-4": ("the end stops deliveries, and a slow receiver delays only itself",),
    "O-5": ("a poll is repeated at its age with jitter, and equality is that of messages",),
    "O-6": ("errors are delivered, and retries back off with jitter",),
    "O-7": ("after the index 0, the next call asks for 1",),
    "P-1": ("a snapshot is applied in one step, and an empty one has a position",),
    "P-2": ("a wait ends at its position, and a deadline leaves the newest state",),
    "P-3": (
        "caches share their streams",
        Otherwise("streams.md", "Consul keeps an idle view for 20 minutes"),
        Otherwise("streams.md", "Consul evicts a view whose stream has ended for good"),
    ),
    "P-4": ("each change reaches every handle, and many handles share one view",),
    "P-5": ("a new snapshot replaces the state, and a first failure is not shown",),
    "P-6": (
        "streams are retried with growing, random delays",
        Otherwise("streams.md", "A stream is retried after 25 to 50 ms at first"),
    ),
    "P-7": ("rights are checked for each event, and a token without them ends the cache",),
    "Q-1": (
        "an item is one of: a batch, the end of a snapshot, a new snapshot, progress",
        Otherwise("streams.md", "end-of-snapshot and new-snapshot-to-follow, and may be false (Q-1)"),
    ),
    "Q-2": ("a subject is mandatory, and a request without a position gets a snapshot",),
    "Q-3": ("the changes of one commit come in one batch",),
    "Q-4": (
        "requests are forwarded, and events are filtered by rights",
        Otherwise("streams.md", "requests for another datacenter are forwarded (Q-4)"),
    ),
    "Q-5": ("changed rights end the stream with ABORTED",),
    "R-1": (
        "responses carry an operation, and only UPSERT is accepted",
        Otherwise("streams.md", "a subscription is for all exports, and a response is a commit"),
    ),
    "R-2": ("only the leader serves, and a process that loses its lease ends its streams with the next address",),
    "R-3": (
        "a stream begins with open and a valid secret, and the first use of a pending one makes it active",
        Otherwise("streams.md", "makes it active, by a commit that also ends the token"),
    ),
    "R-4": (
        "a peering has one active stream, and its deletion sends terminated",
        Otherwise("streams.md", "it replaces the first one, which ends with ABORTED"),
    ),
    "R-5": (
        "each response has a nonce and is answered",
        Otherwise("streams.md", "At most 32 responses are unanswered"),
    ),
    "R-6": ("what a snapshot or the list of exports lacks is removed",),
    "R-7": (
        "unchanged content is not sent again, and subscribing twice changes nothing",
        Otherwise("streams.md", "Over streams, the position takes the place of the hash"),
    ),
    "R-8": ("heartbeats come every 15 seconds, and two minutes of silence end the stream",),
    "R-9": (
        "the secret of a token is exchanged once",
        Otherwise("streams.md", "A repetition of the attempt gets another pending secret"),
    ),
    "R-10": (
        "changed addresses are pushed",
        Otherwise("streams.md", "the addresses, the server name and the authorities of the accepting side are pushed"),
    ),
}
"""The facts, in short."""

WEAKNESSES: dict[str, str | Otherwise] = {
    "M: what is published after a subscription began is not compared with its snapshot": (
        "test_m9_snapshot_of_several_types_is_complete_up_to_one_revision"
    ),
    "M: resuming works only from the last event": "test_m3_any_kept_position_can_be_resumed",
    "M: an old timer evicts a newer snapshot": "test_m4_snapshots_are_shared_until_something_is_published",
    "M: a refreshed topic keeps its buffer": "test_m7_reset_begins_another_incarnation_without_the_old_events",
    "M: one lock for all topics": Otherwise("streams.md", "each topic has its own log, which numbers the calls"),
    "M: buffers without a bound": "test_topic_keeps_ten_thousand_events",
    "M: indexes are assumed to rise": "test_m8_order_is_that_of_the_calls_for_every_subscriber",
    "O: an index that falls silences the watcher": "test_o_index_that_falls_is_delivered_and_marked",
    "O: a repeated error is never delivered": "test_o6_every_failure_is_delivered_and_the_value_stays",
    "O: a fetch is not interrupted": "test_o_fetch_is_canceled_with_its_last_handle",
    "O: no end is signaled": "test_wait_of_another_task_ends_with_the_cache",
    "O: a receiver must count first deliveries": "test_o_primed_waits_for_a_value_or_an_error_of_every_handle",
    "P: a view is empty between a reset and the next snapshot": "test_p5_cache_is_never_empty_between_two_stores",
    "P: waiters never wake after a reset to a lower index": (
        "test_p2_every_waiter_wakes_after_a_reset_to_a_lower_position"
    ),
    "P: a view in the process resumes where it should begin anew": "test_m7_changed_policy_begins_the_stream_again",
    "P: the key of a view leaves out where it comes from": Otherwise(
        "streams.md", "Streams are shared only within one connection"
    ),
    "Q: arms that may be false": "test_q1_items_survive_the_wire",
    "Q: resuming works only from the head": "test_m3_subscription_resumes_from_any_kept_position",
    "R: refused responses are only counted": "test_refused_resource_is_sent_again_alone_until_it_is_stored",
    "R: nothing bounds what is not answered": "test_r_window_bounds_what_is_not_acknowledged",
    "R: errors of sending are swallowed": "test_r_unknown_type_is_refused_with_its_reason_and_sent_again",
    "R: a receiver cannot tell a part from the whole": "test_r6_deletion_is_by_state_after_the_end_of_a_snapshot",
    "R: streams do not resume": "test_r_reconnect_resumes_by_position_without_a_snapshot",
    "R: a former leader goes on sending": (
        "test_r2_leader_that_loses_its_lease_ends_the_stream_with_the_address_of_the_next"
    ),
    "R: a stream follows a store that was replaced": "test_r_restored_peer_replaces_the_copies_and_is_reported",
    "R: no back-off": "test_r_dialer_backs_off",
}
"""The weaknesses of Consul, each with the test or the decision that shows how Headway does it."""


@cache
def names_of_tests() -> set[str]:
    """Return the names of all tests of the default run's files."""
    found = (path.read_text() for path in TESTS.rglob("test_*.py"))
    return {name for text in found for name in re.findall(r"^ *(?:async )?def (test_\w+)\(", text, re.MULTILINE)}


@pytest.mark.parametrize("fact", FACTS)
def test_fact_has_tests_that_are_named_after_it(fact: str) -> None:
    prefix = f"test_{fact.lower().replace('-', '')}_"
    assert any(name.startswith(prefix) for name in names_of_tests()), (
        f"no test shows that {FACTS[fact][0]}: name it {prefix}…"
    )


def test_tests_are_named_after_facts_that_exist() -> None:
    named = {match[1].upper() for name in names_of_tests() if (match := re.match(r"test_([mopqr]\d+)_", name))}
    assert named <= {fact.replace("-", "") for fact in FACTS}


@pytest.mark.parametrize("weakness", WEAKNESSES)
def test_weakness_has_a_test_or_a_decision(weakness: str) -> None:
    shown = WEAKNESSES[weakness]
    if isinstance(shown, Otherwise):
        check_decision(shown)
    else:
        assert shown in names_of_tests(), f"{weakness}: no test is named {shown}"


@pytest.mark.parametrize("fact", FACTS)
def test_what_is_done_otherwise_is_a_decision(fact: str) -> None:
    for otherwise in FACTS[fact][1:]:
        check_decision(otherwise)


def check_decision(otherwise: Otherwise) -> None:
    page = (DECISIONS / otherwise.page).read_text()
    assert otherwise.said in page, f"docs/decisions/{otherwise.page} does not say {otherwise.said!r}"
