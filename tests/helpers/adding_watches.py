"""Rules for a run machine: its controller adds a watch of notes at run time, and notes and their streams change."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

import headway
from headway.events import RunEnded, WatchAdded
from tests.helpers.machine_parts import MachineParts, names
from tests.helpers.noted_pools import Note
from tests.helpers.stream_beginnings import Begins, Behind, Half, Unreachable

notes = st.sampled_from(["n1", "n2"])
beginnings = st.lists(
    st.one_of(
        st.just(Unreachable()),
        st.builds(Half, st.integers(0, 2)),
        st.builds(Behind, st.integers(0, 40), st.sampled_from(["catches up", "hangs", "is slow"])),
    ),
    max_size=2,
)


class AddingWatches(MachineParts):
    """A mixin with these rules, for the controller of a `NotedPools`."""

    @precondition(lambda self: not self.pools.watching)
    @rule(
        held=st.sampled_from([None, 0, 1, 2]),
        leave=st.booleans(),
        begin=beginnings,
        seconds=st.sampled_from([0.0, 0.3, 6.0]),
        converges=st.booleans(),
    )
    def watch_notes(
        self, held: int | None, leave: bool, begin: list[Begins], seconds: float, converges: bool = False
    ) -> None:
        """Let a reconcile add the watch, with faults at the beginning of the streams of the new type.

        Perhaps a stream is held, so that changes wait for it in the run that ends. One of them moves a member away from
        a pool that does not exist: nothing in the cache of the next run leads to that pool.
        """
        if leave:
            self._change([("no pool", "c", ""), ("member", "c", "m3")])
            self._pass(6.0)
        if held is not None:
            self.channel.streams(self.kinds()[held]).hold()
        if leave:
            self._change([("member", "a", "m3")])
        self.channel.begin(self.pools.note, *begin)
        self.pools.watching = True
        if self.witness.started:
            # Without a run there is no queue. Then each key of the next run will be reconciled.
            self.pools.enqueue("a")
        self._pass(seconds)
        if held is not None:
            self.channel.streams(self.kinds()[held]).release()
        if converges:
            self.converge()

    @rule(note=notes, pool=names, delete=st.booleans(), on=st.booleans())
    def change_a_note(self, note: str, pool: str, delete: bool, on: bool) -> None:
        self.call(self._change_note, note, pool, delete)
        if on:
            self.run_until_blocked()

    async def _change_note(self, note: str, pool: str, delete: bool) -> None:
        if delete:
            await self.users.delete(self.pools.note.id(note))
        else:
            await self.users.apply(self.pools.note.new(note, Note(pool=pool)))

    @precondition(lambda self: self.pools.watching)
    @rule(begin=beginnings, note=notes, pool=names, delete=st.booleans())
    def cut_off_notes(self, begin: list[Begins], note: str, pool: str, delete: bool) -> None:
        """Break the stream of notes, and change a note before the next stream, which begins with a fault."""
        self.channel.begin(self.pools.note, *begin)
        self.channel.streams(self.pools.note).drop()
        self.change_a_note(note, pool, delete, True)

    def check_watches(self) -> None:
        """Check that only the addition ended a run without an error, and that notes were watched in the end."""
        added, ended = self.witness.events_of(WatchAdded), self.witness.events_of(RunEnded)
        assert len(added) <= 1 + self.restarts
        assert sum(event.error is None for event in ended) <= len(added) + self.restarts
        here = self.witness.events[self.witness.process_from :]
        assert self.pools.watches_notes == any(isinstance(event, WatchAdded) for event in here)

    def noted(self, pool: str) -> list[str]:
        """Return the notes that the summary of a pool should list."""
        stored: dict[str, headway.Resource[Any]] = self.store.resources(self.pools.note)
        return sorted(name for name, note in stored.items() if note.data.pool == pool) if self.pools.watching else []
