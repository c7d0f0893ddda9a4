"""Any scoped watch has what a watch of everything has after a filter, at every revision and after every resumption."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from headway.protobuf import copy_message
from headway.resource import Position, pb, resource_key
from headway.storage import Backend, Put, Remove, Within, open_store, open_watch
from headway.testing.conformance import KIND, Held, Reader, held, putting, thing

# A store may search encoded bytes, match patterns, or split texts: none of these may mislead it. There are few entries,
# so that many resources enter scopes and leave them.
TIERS = ("gold", "gold,%", "\x0c\n\x04tier\x12\x04gold")
ODD = ("", "Ü=_'\\\x00")
NAMES = ("a", "a-1")

entries = st.fixed_dictionaries({}, optional={"tier": st.sampled_from(TIERS), "ü %": st.sampled_from(ODD)})
withins = st.builds(
    lambda partition, prefix, chosen: Within(partition, "*", prefix, tuple(sorted(chosen.items()))),
    st.sampled_from(["*", "*", "a"]),
    st.sampled_from(["", "", "", "", "a-", "ü", "a%", "_"]),
    entries,
)
places = st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(NAMES))
Commit = dict[tuple[str, str], dict[str, str] | None]
"""The metadata that some resources get in one commit; None deletes one."""
commits = st.dictionaries(places, st.one_of(st.none(), entries, entries), min_size=1, max_size=3)


@dataclass
class Opened:
    """A scoped watch that was opened at a commit, to resume after an earlier one or with a snapshot."""

    within: Within
    at: int
    back: int | None


openings = st.builds(Opened, withins, st.integers(0, 5), st.one_of(st.none(), st.integers(0, 5)))


class Store:
    """A store, and its state after each commit as a list of everything has it."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.now: dict[tuple[str, str], pb.Resource] = {}
        self.states: list[tuple[Position, list[pb.Resource]]] = [(backend.position, [])]

    async def commit(self, changes: Commit) -> None:
        operations: list[Put | Remove] = []
        for (partition, name), entries in changes.items():
            stored = self.now.get((partition, name))
            if entries is None:
                if stored is not None:
                    assert stored.id is not None
                    operations.append(Remove(KIND, resource_key(stored), stored.version, stored.id.uid))
                continue
            made = thing(name, partition=partition) if stored is None else copy_message(stored)
            made.version, made.metadata = "", dict(entries)
            operations.append(putting(made, "" if stored is None else stored.version))
        if operations:
            await self.backend.commit(tuple(operations))
        found, position = await self.backend.list(KIND, Within())
        self.now = {(resource_key(each)[0], resource_key(each)[2]): each for each in found}
        self.states.append((position, [*found]))


async def compare(backend: Backend, changes: list[Commit], opened: list[Opened]) -> None:
    store = Store(backend)
    readers: list[tuple[Within, Reader]] = []
    for number, change in enumerate([{}, *changes]):
        await store.commit(change)
        position, everything = store.states[-1]
        for each in opened:
            if each.at == number:
                readers.append((each.within, await _opened(store, each)))
        for within, reader in readers:
            shown, known = set(reader.held), len(reader.changes)
            await reader.until(position.revision)
            assert reader.held == expected(within, everything), within
            for late in reader.changes[known:]:
                key = resource_key(late.resource)
                assert within.admits(late.resource)
                if late.deleted:
                    # Nothing is deleted that the reader does not have.
                    shown.remove(key)
                else:
                    shown.add(key)
        listed, _ = await backend.list(KIND, opened[0].within)
        assert held(listed) == expected(opened[0].within, everything)
    for _, reader in readers:
        reader.watch.close()


def expected(within: Within, everything: list[pb.Resource]) -> Held:
    return held([each for each in everything if within.admits(each)])


async def _opened(store: Store, each: Opened) -> Reader:
    if each.back is None:
        return Reader(await open_watch(store.backend, KIND, each.within))
    after, then = store.states[max(0, len(store.states) - 1 - each.back)]
    reader = Reader(await open_watch(store.backend, KIND, each.within, after))
    reader.held = expected(each.within, then)
    return reader


@given(st.lists(commits, min_size=6, max_size=10), st.lists(openings, min_size=2, max_size=4))
def test_scoped_watch_is_a_filtered_watch_in_memory(changes: list[Commit], opened: list[Opened]) -> None:
    async def main() -> None:
        async with open_store("memory:") as backend:
            await compare(backend, changes, opened)

    trio.run(main)


@pytest.mark.wide
@given(st.lists(commits, min_size=6, max_size=10), st.lists(openings, min_size=2, max_size=4))
def test_scoped_watch_is_a_filtered_watch_in_sqlite(changes: list[Commit], opened: list[Opened]) -> None:
    async def main() -> None:
        with TemporaryDirectory() as folder:
            async with open_store(f"sqlite:{Path(folder, 'store.db')}") as backend:
                await compare(backend, changes, opened)

    trio.run(main)
