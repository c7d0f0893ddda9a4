"""Traces between engines that share a store in etcd: the context travels beside the head."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack

import pytest
import trio

import headway
from headway import events
from headway._gen.mvccpb import KeyValue
from headway.storage import COMMITTING, Committing, CommitTrace, CommitTraces, EtcdBackend, Put
from headway.storage.etcd.layout import PLACES, Layout, head_from, traces_from, traces_value
from headway.testing.conformance import names, putting, thing
from tests.helpers.etcd_server import EtcdServer
from tests.storage.etcd_kit import PREFIX, rigged, until
from tests.tracing.spans import CHAIN, Spans, chain, named
from tests.tracing.staff import Staff, Team, types_alone

GOOD = CommitTrace("00-" + "1" * 32 + "-" + "2" * 16 + "-01", "a=b", 7)


async def test_one_trace_spans_two_engines_on_one_etcd(etcd: EtcdServer) -> None:
    """One engine writes, and the other one has the controller. The second reconcile comes from its own write."""
    url = f"etcd://{etcd.endpoint}{etcd.new_prefix()}"
    writing, reconciling, staff = Spans(), Spans(), Staff()
    with trio.fail_after(50):
        async with AsyncExitStack() as stack:
            one = await stack.enter_async_context(
                headway.open_engine(url, types_alone(), process="web-1", report=events.ignore, tracing=writing.provider)
            )
            two = await stack.enter_async_context(
                headway.open_engine(url, staff.app, process="web-2", report=events.ignore, tracing=reconciling.provider)
            )
            await two.wait_idle()
            with writing.root() as root:
                await one.client.write(staff.team.new("core", Team(size=1)))
            while len(reconciling.named("reconcile")) < 2:  # noqa: ASYNC110  # an exporter has no event
                await trio.sleep(0.02)
    everything = [*writing.all(), *reconciling.all()]
    first, second = named(everything, "reconcile")
    assert chain(first, everything) == CHAIN
    assert chain(second, everything) == [*CHAIN, *CHAIN]
    assert {each.trace for each in everything} == {root.get_span_context().trace_id}
    assert [each.name for each in writing.all()] == ["commit", "write"]
    [delivered] = named(everything, "deliver", type="staff.v1.Team")
    assert delivered.start <= delivered.end


async def commit(store: EtcdBackend, trace: CommitTrace | None, *puts: Put) -> int:
    """Make a commit, traced or not, and return its revision."""
    token = COMMITTING.set(None if trace is None else Committing(trace, CommitTraces(), lambda: 9))
    try:
        return (await store.commit(puts)).revision
    finally:
        COMMITTING.reset(token)


async def test_head_of_a_traced_transaction_is_one_that_earlier_programs_read() -> None:
    """The contexts are in a key of their own. Earlier programs ignore it, because it is not among the counted ones."""
    layout = Layout(PREFIX)
    async with rigged() as rig:
        keys = rig.fake.state.keys
        await commit(rig.store, None, putting(thing("one")))
        assert layout.trace not in keys
        untraced = keys[layout.head]
        revision = await commit(rig.store, GOOD, putting(thing("two")))
        traced, trace = keys[layout.head], keys[layout.trace]
        assert len(traced.value) == len(untraced.value)
        assert head_from(traced).changes == head_from(untraced).changes == (1,)
        assert trace.mod_revision == traced.mod_revision
        assert traces_from(trace) == {revision: GOOD}
        await commit(rig.store, None, putting(thing("three")))
        assert keys[layout.trace] == trace
        assert keys[layout.head].mod_revision > trace.mod_revision


async def test_engine_that_opens_a_store_reads_the_contexts_of_its_history() -> None:
    async with rigged() as rig:
        traced = await commit(rig.store, GOOD, putting(thing("one")))
        untraced = await commit(rig.store, None, putting(thing("two")))
        async with EtcdBackend(rig.url) as later:
            assert (later.traces.of(traced), later.traces.of(untraced)) == (GOOD, None)


@pytest.mark.parametrize(("count", "kept"), [(2, True), (3, False)])
async def test_commit_without_room_for_its_context_is_made_without_it(count: int, kept: bool) -> None:
    """A transaction of five operations has room for three resources, the head and the look at the quotas."""
    puts = [putting(thing(f"n{number}")) for number in range(count)]
    async with rigged() as rig, EtcdBackend(rig.url, max_txn_ops=5) as store:
        revision = await commit(store, GOOD, *puts)
        await until(lambda: rig.store.position.revision >= revision)
        assert (rig.store.traces.of(revision) == GOOD) is kept
        assert len(rig.store.traces) == kept
        assert len(await names(store)) == count


def test_contexts_that_headway_has_not_written_are_ignored() -> None:
    def found(value: bytes) -> dict[int, CommitTrace]:
        return traces_from(KeyValue(key=b"/trace", value=value, mod_revision=3))

    assert found(traces_value({0: GOOD, 5: GOOD})) == {3 * PLACES: GOOD, 3 * PLACES + 5: GOOD}
    texts = ["", "{", "{}", "[1]", '[["x", "y", "z", 1]]', "[" * 5000, '[[200, "", "", 0]]', "null"]
    for each in [*(text.encode() for text in texts), b"\xff"]:
        assert found(each) == {}
    assert found(json.dumps([[0, GOOD.traceparent, 7, "now"], [1, "00-no", "", 0]]).encode()) == {
        3 * PLACES: GOOD._replace(tracestate="", committed_at=0)
    }
