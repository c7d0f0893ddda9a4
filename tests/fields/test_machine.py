"""A state machine of managers that apply, take over and give up fields, beside plain writers, against a plain model."""

from __future__ import annotations

import itertools
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headway.errors import Conflict, FailedPrecondition, FieldConflict, NotFound
from headway.resource import FIELD_OWNERS
from headway.storage import Backend, MemoryBackend, SqliteBackend
from headway.testing import LiveRun
from tests.fields.model import LEAVES, ONE_OF, PATHS, Model
from tests.fields.things import client_of, owners_of, thing, things, values_of

MANAGERS = ["ada", "bob", "shop/sizer"]

managers = st.sampled_from(MANAGERS)
path_sets = st.sets(st.sampled_from(PATHS), max_size=5)


def _value(leaf: str) -> st.SearchStrategy[Any]:
    default = LEAVES[leaf]
    if leaf == "socket":
        return st.sampled_from([None, 0, 1])
    if default is None:
        return st.sampled_from([None, "", "x"])
    return st.sampled_from([0, 1, 2] if default == 0 else [(), ("h",), ("h", "i")] if default == () else ["", "n"])


@st.composite
def all_values(draw: st.DrawFn) -> dict[str, Any]:
    values = {leaf: draw(_value(leaf)) for leaf in LEAVES}
    if all(values[leaf] is not None for leaf in ONE_OF):
        values[draw(st.sampled_from(ONE_OF))] = None
    return values


def _listed(values: dict[str, Any], paths: set[str]) -> set[str]:
    """Return the paths that the values have: an entry of a map that is not there cannot be applied."""
    entries = ("labels.a", "labels.b.c", "metadata:tier")
    return {path for path in paths if path not in entries or values[path] is not None}


class FieldsMachine(LiveRun, RuleBasedStateMachine):
    """One resource. Its values and owners are those of the model after each step."""

    def make(self) -> Backend:
        return MemoryBackend()

    @initialize()
    def open(self) -> None:
        self.backend = self.make()
        self.call(self.backend.__aenter__)
        registry, self.type = things()
        self.client = client_of(self.backend, registry)
        self.model = Model()
        # What a slow plain writer has read.
        self.read: Any = None

    @rule(manager=managers, values=all_values(), paths=path_sets, force=st.booleans())
    def apply(self, manager: str, values: dict[str, Any], paths: set[str], force: bool) -> None:
        paths = _listed(values, paths)
        self.call(self._apply, manager, values, paths, force)

    async def _apply(self, manager: str, values: dict[str, Any], paths: set[str], force: bool) -> None:
        before = await self.client.get(self.type, "one")
        if refused := self.model.conflicts(manager, values, paths, force=force):
            with pytest.raises(FieldConflict) as caught:
                await self._send(manager, values, paths, force)
            assert sorted(caught.value.conflicts) == refused
            for named in caught.value.conflicts[0]:
                assert named in str(caught.value)
            after = await self.client.read(self.type, "one")
            assert before is not None
            assert after.version == before.version
            return
        if before is None and not paths:
            with pytest.raises(NotFound, match="nothing to give up"):
                await self._send(manager, values, paths, force)
            return
        self.model.apply(manager, values, paths, force=force)
        stored = await self._send(manager, values, paths, force)
        again = await self._send(manager, values, paths, force)
        assert again.version == stored.version

    async def _send(self, manager: str, values: dict[str, Any], paths: set[str], force: bool) -> Any:
        given = thing(self.type, values)
        return await self.client.apply(given, fields=sorted(paths), manager=manager, force=force)

    @rule(manager=managers, values=all_values())
    def apply_again_what_is_owned(self, manager: str, values: dict[str, Any]) -> None:
        paths = _listed(values, self.model.owners.get(manager, set()))
        self.call(self._apply, manager, values, paths, False)

    @rule(data=st.data(), values=all_values())
    def two_applies_at_once(self, data: st.DataObject, values: dict[str, Any]) -> None:
        """Whichever is stored last, nothing of the other is lost."""
        pair = data.draw(st.permutations(MANAGERS))[:2]
        given = [(each, _listed(values, data.draw(path_sets)), data.draw(st.booleans())) for each in pair]
        possible = [self._after(order, values) for order in itertools.permutations(given)]

        async def send(manager: str, paths: set[str], force: bool) -> None:
            with suppress(FieldConflict, NotFound):
                await self._send(manager, values, paths, force)

        async def both() -> None:
            async with trio.open_nursery() as nursery:
                for each in given:
                    nursery.start_soon(send, *each)

        self.call(both)
        found = self.call(self.client.get, self.type, "one")
        [self.model] = [each for each in possible if self._is(found, each)][:1] or possible[:1]

    def _after(self, applies: tuple[tuple[str, set[str], bool], ...], values: dict[str, Any]) -> Model:
        model = self.model.copy()
        for manager, paths, force in applies:
            if not model.conflicts(manager, values, paths, force=force):
                model.apply(manager, values, paths, force=force)
        return model

    @rule(values=all_values(), changed=st.sets(st.sampled_from(list(LEAVES)), max_size=4), whole=st.booleans())
    def write(self, values: dict[str, Any], changed: set[str], whole: bool) -> None:
        """A writer who knows nothing of owners writes what it has read with changes, or replaces everything."""
        self.call(self._write, values, changed, whole)

    async def _write(self, values: dict[str, Any], changed: set[str], whole: bool) -> None:
        found = await self.client.get(self.type, "one")
        if found is None or whole:
            given = thing(self.type, values)
            await self.client.write(given)
            self.model.write(values_of(given))
            return
        kept = values_of(found)
        for leaf in changed:
            if leaf in ONE_OF and values[leaf] is not None:
                kept |= dict.fromkeys(ONE_OF)
            kept[leaf] = values[leaf]
        made = thing(self.type, kept)
        found.data = made.data
        # Whether the entry of the owners is among the metadata makes no difference.
        found.metadata = made.metadata | ({FIELD_OWNERS: "forged"} if "size" in changed else {})
        await self.client.write(found)
        self.model.write(kept)

    @rule(values=all_values())
    def apply_everything(self, values: dict[str, Any]) -> None:
        """A plain apply, without fields."""
        given = thing(self.type, values)
        stored = self.call(self.client.apply, given)
        assert self.call(self.client.apply, given).version == stored.version
        self.model.write(values)

    @rule()
    def read_slowly(self) -> None:
        self.read = self.call(self.client.get, self.type, "one")

    @precondition(lambda self: self.read is not None)
    @rule(values=all_values())
    def write_late(self, values: dict[str, Any]) -> None:
        """A write of something that was read some time ago succeeds only if nothing has changed."""
        late, self.read = self.read, None
        found = self.call(self.client.get, self.type, "one")
        made = thing(self.type, values)
        late.data, late.metadata = made.data, made.metadata
        if found is not None and found.version == late.version:
            self.call(self.client.write, late)
            self.model.write(values)
        else:
            with pytest.raises((Conflict, FailedPrecondition)):
                self.call(self.client.write, late)

    @precondition(lambda self: self.model.values is not None)
    @rule()
    def write_a_status(self) -> None:
        found = self.call(self.client.read, self.type, "one")
        self.call(self.client.write_status, found, "shop/sizer", [])

    @rule()
    def delete(self) -> None:
        self.call(self.client.delete, self.type.id("one"))
        self.model.delete()

    @invariant()
    def is_as_in_the_model(self) -> None:
        if not hasattr(self, "client"):
            return
        found = self.call(self.client.get, self.type, "one")
        assert (found is None) == (self.model.values is None)
        if found is not None:
            assert values_of(found) == self.model.values
            assert owners_of(found) == self.model.owners

    def _is(self, found: Any, model: Model) -> bool:
        if found is None or model.values is None:
            return (found is None) == (model.values is None)
        return values_of(found) == model.values and owners_of(found) == model.owners

    def teardown(self) -> None:
        if hasattr(self, "backend"):
            self.call(self.backend.__aexit__, None, None, None)
        super().teardown()


class SqliteFieldsMachine(FieldsMachine):
    """The same over a store in a file."""

    def make(self) -> Backend:
        self.folder = tempfile.TemporaryDirectory()
        return SqliteBackend(Path(self.folder.name) / "things.db")

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            self.folder.cleanup()


TestFieldsMachine = FieldsMachine.TestCase
TestSqliteFieldsMachine = pytest.mark.wide(SqliteFieldsMachine.TestCase)
TestSqliteFieldsMachine.settings = settings(settings.get_profile("default"), max_examples=5)
