"""The contexts of commits: which texts are contexts, and how many are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from headway.protobuf import encode
from headway.resource import Changes, Position, pb
from headway.storage import (
    COMMITTING,
    LONGEST_TRACESTATE,
    Committing,
    CommitTrace,
    CommitTraces,
    Within,
    open_store,
    sampled_trace,
)
from headway.testing.conformance import KIND, name_of, putting, thing
from headway.tracing._wire import TracedWatchDecoder

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


def test_sampled_context_is_kept_as_it_is() -> None:
    found = sampled_trace(GOOD, "rojo=00f067aa0ba902b7,t61rcwkgmze@vendor=a b", 7)
    assert found == CommitTrace(GOOD, "rojo=00f067aa0ba902b7,t61rcwkgmze@vendor=a b", 7)
    assert (found.trace_id, found.span_id) == (TRACE, SPAN)


@pytest.mark.parametrize("flags", ["01", "03", "ff"])
def test_flags_other_than_sampled_are_dropped(flags: str) -> None:
    assert sampled_trace(f"00-{TRACE}-{SPAN}-{flags}") == CommitTrace(GOOD)


def test_later_version_with_more_fields_is_understood() -> None:
    assert sampled_trace(f"cc-{TRACE}-{SPAN}-01-what-the-future-says") == CommitTrace(GOOD)


@pytest.mark.parametrize(
    "given",
    [
        None,
        7,
        GOOD.encode(),
        "",
        GOOD[:-1],
        f" {GOOD}",
        f"{GOOD}\n",
        f"{GOOD}-",
        GOOD.upper(),
        f"00-{TRACE}-{SPAN}-00",
        f"00-{TRACE}-{SPAN}-02",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}٣-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01-{'x' * 300}",
    ],
)
def test_anything_else_is_no_context(given: object) -> None:
    assert sampled_trace(given, "a=b", 1) is None


@pytest.mark.parametrize(
    "state",
    [
        None,
        "a",
        "=b",
        "a=",
        "A=b",
        "a=b,",
        "a=b c ",
        "a=b=c",
        "a=é",
        "a=b\n",
        f"a={'b' * (LONGEST_TRACESTATE - 1)}",
        ",".join(f"k{number}=v" for number in range(33)),
    ],
)
def test_invalid_state_is_left_out(state: object) -> None:
    assert sampled_trace(GOOD, state) == CommitTrace(GOOD)


@pytest.mark.parametrize("at", [None, -1, 2**63, 1.5, True, "7"])
def test_invalid_time_is_left_out(at: object) -> None:
    assert sampled_trace(GOOD, "", at) == CommitTrace(GOOD)


def test_only_the_latest_contexts_are_kept() -> None:
    traces = CommitTraces(limit=3)
    for revision in range(1, 6):
        traces.put(revision, CommitTrace(GOOD, "", revision))
    assert [traces.of(revision) is not None for revision in range(1, 6)] == [False, False, True, True, True]
    assert len(traces) == 3


def test_first_context_of_a_commit_stays() -> None:
    """A store keeps it before its watchers wake, and the caller of the commit keeps it again."""
    traces = CommitTraces()
    commit = Committing(CommitTrace(GOOD), traces, iter((7, 9)).__next__)
    assert not commit.kept
    commit.made(3)
    commit.made(3)
    assert commit.kept
    assert traces.of(3) == CommitTrace(GOOD, "", 7)


def streams(traces: CommitTraces, *store_ids: str) -> list[Callable[[int], None]]:
    """Begin a stream of each store, and return functions that receive a traced commit from them."""
    made: list[Callable[[int], None]] = []
    for store_id in store_ids:
        decoder = TracedWatchDecoder(traces)
        decoder([encode(pb.WatchEvent(bookmark=pb.WatchEventBookmark(Position(store_id, "", 1).message())))])

        def receive(revision: int, decoder: TracedWatchDecoder = decoder, store_id: str = store_id) -> None:
            trace = pb.CommitTrace(traceparent=GOOD, tracestate=f"store={store_id}")
            event = pb.WatchEvent(upsert=pb.WatchEventUpsert(thing("n")), revision=revision, trace=trace)
            decoder([encode(event)])

        made.append(receive)
    return made


def test_contexts_of_a_replaced_store_are_forgotten() -> None:
    """An open stream of the replaced store brings no more of them."""
    traces = CommitTraces()
    one, another = streams(traces, "a", "a")
    one(3)
    another(4)
    assert len(traces) == 2
    [replaced] = streams(traces, "b")
    assert traces.of(3) is None
    one(5)
    replaced(4)
    assert [traces.of(revision) for revision in (4, 5)] == [CommitTrace(GOOD, "store=b"), None]


def test_contexts_are_forgotten_when_a_rolled_back_store_is_accepted() -> None:
    """The streams that begin afterwards bring those of the next history, under the same id of the store."""
    traces = CommitTraces()
    [lost] = streams(traces, "a")
    lost(3)
    traces.clear()
    lost(4)
    assert len(traces) == 0
    [accepted] = streams(traces, "a")
    accepted(3)
    assert traces.of(3) is not None


async def test_sqlite_keeps_a_context_before_a_watcher_has_the_commit(tmp_path: Path) -> None:
    """Commits share transactions, and a watcher may run before the tasks that have committed."""
    traces = CommitTraces()
    async with open_store(f"sqlite:{tmp_path}/things.db") as store, trio.open_nursery() as nursery:
        watch = await store.watch(KIND, Within())
        await watch.next()

        async def write(number: int) -> None:
            trace = CommitTrace(GOOD, f"number={number}")
            COMMITTING.set(Committing(trace, traces, lambda: 7))
            await store.commit([putting(thing(f"n{number}"))])

        for number in range(20):
            nursery.start_soon(write, number)
        found: set[str] = set()
        with trio.fail_after(30):
            while len(found) < 20:
                item = await watch.next()
                if isinstance(item, Changes):
                    for change in item.changes:
                        trace = traces.of(change.revision)
                        assert trace is not None
                        assert trace.tracestate == f"number={name_of(change.resource)[1:]}"
                        found.add(trace.tracestate)
        watch.close()
