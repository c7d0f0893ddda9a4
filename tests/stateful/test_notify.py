"""A state machine that drives a program's cache and its notifications under every fault of streams, and restores.

Whatever happens, the cache and every handle show a state that the store has had: the same revision of all types, never
an older one than before unless the store was restored, and never nothing instead of something.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import headway
from headway.errors import HeadwayError, StoreChanged, StoreRolledBack
from headway.notify import Handle
from headway.resource import Key, Within, pb, resource_key, selected
from headway.storage import Put, Remove
from headway.testing import LiveRun
from tests.helpers.cached import LAG_LIMIT, Staff, restore
from tests.helpers.faulty_stream import KindStreams
from tests.helpers.resources import Account
from tests.helpers.restorable import Backup
from tests.helpers.run_machine import beginnings
from tests.helpers.stream_beginnings import Begins
from tests.helpers.truth import Commit

NAMES = ["a", "b", "c"]
SHOWN = "shown=yes"
State = dict[tuple[str, Key], tuple[str, str]]
"""The uid and version of each resource, by kind and key."""

kinds = st.sampled_from([0, 1])
writes = st.lists(st.tuples(kinds, st.sampled_from(NAMES), st.booleans()), min_size=1, max_size=3)
commits = st.lists(writes, max_size=3)


def state_of(resources: list[Any]) -> State:
    return {(each.type.kind[1], each.id.key): (each.uid, each.version) for each in resources}


class NotifyMachine(LiveRun, RuleBasedStateMachine):
    """Hypothesis commits, harms streams and restores the store, while receivers of any speed look on."""

    scoped: ClassVar[bool] = False
    # A change that was committed may have reached one type, but not the other one and the handles.
    is_under_way = False
    staff: Staff
    cache: headway.notify.PrimedCache
    types: list[headway.ResourceType[Any]]

    @initialize(first=commits, begin=st.tuples(beginnings, beginnings))
    def open(self, first: list[list[tuple[int, str, bool]]], begin: tuple[list[Begins], list[Begins]]) -> None:
        self.staff = Staff()
        self.backup: Backup | None = None
        # The commits of each store that there has been, the last one aside, and the one that the cache shows.
        self.lost: list[list[Commit]] = []
        # The last session of each of them.
        self.sessions: list[str] = []
        self.shown = 0
        self.accepted = 0
        self.floors: dict[str, int] = {}
        self.handles: list[Handle[Any]] = []
        self.received: dict[Handle[Any], object] = {}
        self.waits: list[object] = []
        self.types = [self.staff.team, self.staff.account]
        self.by_login: headway.indexes.Index[headway.Resource[Account], str] = self.staff.by_login

        async def start() -> None:
            await self.nursery.start(self._live_engine)
            for what in first:
                await self._commit(what)
            for type, of_type in zip(self.types, begin, strict=True):
                self.staff.channel.begin(type, *of_type)
            await self.nursery.start(self._live_cache)

        self.call(start)

    async def _live_engine(self, task_status: trio.TaskStatus[None]) -> None:
        async with self.staff.open():
            task_status.started()
            await trio.sleep_forever()

    async def _live_cache(self, task_status: trio.TaskStatus[None]) -> None:
        options: dict[str, Any] = {}
        if self.scoped:
            shown = self.staff.account.within(metadata=SHOWN)
            self.by_login = headway.indexes.by(shown, "login", lambda account: account.data.login)
            options = {"watches": [self.staff.team, shown], "indexes": [self.by_login]}
        async with self.staff.cache(**options) as self.cache, self.cache.notify() as self.updates:
            task_status.started()
            await trio.sleep_forever()

    # --- what users do ---

    @rule(what=writes, on=st.booleans())
    def commit(self, what: list[tuple[int, str, bool]], on: bool) -> None:
        """Write several resources of both types in one commit."""
        self.call(self._commit, what)
        self.is_under_way = not on
        if on:
            self._pass(0.1)

    async def _commit(self, what: list[tuple[int, str, bool]]) -> None:
        store = self.staff.store
        operations: dict[tuple[int, str], Put | Remove] = {}
        for kind, name, delete in what:
            type = self.types[kind]
            held = store.resources(type).get(name)
            if held is None and not delete:
                data = Account(login="l1") if kind else None
                message: pb.Resource = type.new(name, data).message()
                assert message.id is not None
                message.id.uid = f"{name}{len(store.commits)}"
                message.metadata["shown"] = "yes"
                operations[kind, name] = Put(type.kind, resource_key(message), message, "")
            elif held is not None and delete:
                operations[kind, name] = Remove(type.kind, held.id.key, held.uid, held.version)
            elif held is not None:
                if kind:
                    held.data.login = "l0" if held.data.login == "l1" else "l1"
                    if held.data.login == "l1":
                        held.metadata["shown"] = "no" if held.metadata["shown"] == "yes" else "yes"
                operations[kind, name] = Put(type.kind, held.id.key, held.message(), held.version)
        if operations:
            await store.commit(list(operations.values()))

    @rule(seconds=st.sampled_from([0.0, 0.06, 2.0, 40.0]))
    def pass_time(self, seconds: float) -> None:
        self._pass(seconds)

    def _pass(self, seconds: float) -> None:
        if seconds:
            self.sleep(seconds)
        self.run_until_blocked()
        self.is_under_way = False

    # --- what the program does ---

    @precondition(lambda self: len(self.handles) < 6)
    @rule(kind=kinds, what=st.sampled_from(["list", "get", "index"]), name=st.sampled_from(NAMES))
    def ask(self, kind: int, what: str, name: str) -> None:
        type: headway.ResourceType[Any] = self.types[kind]
        if what == "list":
            self.handles.append(self.updates.list(type, correlation_id=what))
        elif what == "get":
            self.handles.append(self.updates.get(type, name, correlation_id=what))
        else:
            self.handles.append(self.updates.index(self.by_login, "l1", correlation_id=what))
        self.run_until_blocked()

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def close_handle(self, data: st.DataObject) -> None:
        handle = self.handles.pop(data.draw(st.integers(0, len(self.handles) - 1), label="which"))
        handle.close()
        self.received.pop(handle, None)

    @rule(count=st.integers(1, 4))
    def receive(self, count: int) -> None:
        """Receive some of the handles that have changed."""
        for _ in range(count):
            if self.updates._changed:
                handle = self.call(self.updates.__anext__)
                self.received[handle] = self._value(handle)

    @rule(beyond=st.integers(0, 2))
    def wait(self, beyond: int) -> None:
        """Wait for the position of the store, or for one that does not exist yet."""
        revision = self.staff.store.position.revision + beyond

        async def wait_for() -> None:
            self.waits.append(token := object())
            try:
                await self.cache.wait_for(revision)
                assert all(self.cache.revision(type) >= revision for type in self.types)
            except (StoreChanged, StoreRolledBack):
                pass
            self.waits.remove(token)

        async def start() -> None:
            self.nursery.start_soon(wait_for)

        self.call(start)
        self.run_until_blocked()

    # --- what the network and the servers do ---

    @rule(kind=kinds, begin=beginnings, what=commits, seconds=st.sampled_from([0.0, 0.3, 6.0, 40.0]))
    def cut_off(self, kind: int, begin: list[Begins], what: list[list[tuple[int, str, bool]]], seconds: float) -> None:
        self.staff.channel.begin(self.types[kind], *begin)
        self._streams(kind).drop()
        for each in what:
            self.call(self._commit, each)
        self._pass(seconds)

    @rule(kind=kinds, what=commits, steps=st.integers(0, 4), release=st.booleans())
    def lag(self, kind: int, what: list[list[tuple[int, str, bool]]], steps: int, release: bool) -> None:
        """Hold a stream while something is committed, and let its items pass one at a time, as new handles see it."""
        streams = self._streams(kind)
        streams.hold()
        for each in what:
            self.call(self._commit, each)
        self._pass(0.06)
        fresh: list[Handle[Any]] = [self.updates.list(type) for type in self.types]
        self.handles += fresh
        for _ in range(steps):
            streams.let_pass()
            self._pass(0.06)
            self.everything_shown_is_true()
        self.everything_shown_is_true()
        for handle in fresh:
            self.handles.remove(handle)
            self.received.pop(handle, None)
            handle.close()
        if release:
            streams.release()

    @rule(kind=kinds, revisions=st.integers(1, 12))
    def repeat(self, kind: int, revisions: int) -> None:
        """Deliver the changes of the last revisions again."""
        streams = self._streams(kind)
        until = streams.delivered
        streams.repeat(
            self.staff.store.changes(self.types[kind].kind, until - revisions, until, self._range(self.types[kind]))
        )

    @rule()
    def compact(self) -> None:
        self.staff.store.compact()

    @rule()
    def back_up(self) -> None:
        self.backup = self.staff.store.back_up()

    @precondition(lambda self: self.backup is not None)
    @rule(new_id=st.booleans(), what=commits, seconds=st.sampled_from([0.0, 1.0, 60.0]))
    def restore(self, new_id: bool, what: list[list[tuple[int, str, bool]]], seconds: float) -> None:
        """Put the store back to a backup, of which every type has seen more."""
        backup, self.backup = self.backup, None
        assert backup is not None
        if min(self.cache.revision(type) for type in self.types) <= backup.revision:
            return
        if self.cache.status().position.session != self.staff.store.position.session:
            # An accepted store that the cache has not read yet: this restore takes nothing back that was shown of it.
            return
        self.lost.append(list(self.staff.store.commits))
        self.sessions.append(self.staff.store.position.session)
        restore(self.staff, backup, new_id=new_id)
        for each in what:
            self.call(self._commit, each)
        self._pass(seconds)
        if not new_id:
            self._pass(60.0)
            assert self.shown < len(self.lost), "a store that was rolled back is shown before it is accepted"
            assert isinstance(self.cache.status().problem, StoreRolledBack)
            assert self.cache.accept_store(), "a store that was rolled back was not noticed"
        self.everything_shown_is_true()

    # --- what must hold ---

    @invariant()
    def everything_shown_is_true(self) -> None:
        if not hasattr(self, "cache"):
            return
        # The cache may have changed over to a later store, and never returns to an earlier one.
        # If both histories contain what it shows, only its revision distinguishes them.
        while not self._is_true(self.shown) or (self.shown < len(self.lost) and self._falls()):
            assert self.shown < len(self.lost), "the cache shows a state that no store has had"
            self.shown += 1
            self.floors.clear()
        for type in self.types:
            self._rises(str(type.name), self.cache.revision(type))
        positions = {handle.position for handle in self.handles if self._value(handle) is not None}
        assert len(positions) <= 1, f"the handles show several revisions: {positions}"
        for position in positions:
            assert position is not None
            self._rises(f"handles of {position.session}", position.revision)
        self._no_handle_is_old_without_an_error()

    def _no_handle_is_old_without_an_error(self) -> None:
        """Check that a handle without an error shows what the cache does, unless a stream is open but lags."""
        status = self.cache.status()
        if self.is_under_way or status.lag or status.problem is not None:
            return
        for handle in self.handles:
            if handle.error is None and self._value(handle) is not None and handle.position is not None:
                type = handle._answer.type  # type: ignore[attr-defined]  # it is a read
                for revision in (handle.position.revision, self.cache.revision(type)):
                    assert self._truth(self.shown, type, revision) == state_of(self.cache.list(type)), (
                        f"{handle!r} looks current at {handle.position.revision}, below {self.cache.revision(type)}"
                    )

    def _falls(self) -> bool:
        return any(self.cache.revision(type) < self.floors.get(str(type.name), 0) for type in self.types)

    def _rises(self, what: str, revision: int) -> None:
        assert revision >= self.floors.get(what, 0), f"{what} fell to revision {revision} from {self.floors[what]}"
        self.floors[what] = revision

    def _is_true(self, number: int) -> bool:
        """Return True if all that is shown is what this store had at its revision."""
        if any(state_of(self.cache.list(t)) != self._truth(number, t, self.cache.revision(t)) for t in self.types):
            return False
        return all(self._handle_is_true(number, handle) for handle in self.handles)

    def _handle_is_true(self, number: int, handle: Handle[Any]) -> bool:
        value = self._value(handle)
        if value is None or handle.position is None:
            return True
        key: Any = handle._answer.key
        what, type, *rest = key
        revision, session = handle.position.revision, handle.position.session
        # The handles change over to a later store together, once the cache has reached one cut of it.
        number = self.sessions.index(session) if session in self.sessions[:number] else number
        if what == "list":
            return bool(value == self._truth(number, type, revision))
        if what == "get":
            truth = self._truth(number, type, revision)
            return bool(value == {of: there for of, there in truth.items() if of[1] == rest[0].key})
        truth = self._truth(number, self.staff.account, revision, login="l1")
        return bool(value == truth)

    def _truth(self, number: int, type: headway.ResourceType[Any], revision: int, *, login: str = "") -> State:
        commits = [*self.lost, self.staff.store.commits][number]
        range = self._range(type)
        there: dict[Key, tuple[str, str, Any]] = {}
        for commit in commits:
            if commit.kind == type.kind and commit.revision <= revision:
                there.pop(commit.key, None)
                if commit.new is not None and commit.new.id is not None:
                    there[commit.key] = (commit.new.id.uid, str(commit.revision), commit.new)
        return {
            (type.kind[1], key): (uid, version)
            for key, (uid, version, new) in there.items()
            if (not login or type.view(new).data.login == login) and range.admits(new)
        }

    def _range(self, type: headway.ResourceType[Any] | headway.ScopedType[Any]) -> Within:
        """Return the part of a type that the cache has."""
        return Within(metadata=selected(SHOWN)) if self.scoped and type.kind == self.staff.account.kind else Within()

    def _value(self, handle: Handle[Any]) -> State | None:
        """Return what a handle shows, or None before its first value."""
        try:
            value = handle.value
        except HeadwayError:
            assert not handle._answer.values, "a handle has lost its value"
            return None
        return state_of(value if isinstance(value, list) else [value] if value is not None else [])

    def teardown(self) -> None:
        """End the faults. Then the cache and what every receiver has last received are the store's present state."""
        try:
            if hasattr(self, "updates"):
                self.staff.channel.end_faults()
                self._pass(200.0)
                self.everything_shown_is_true()
                status = self.cache.status()
                assert (status.problem, status.cut_off, status.lag) == (None, "", 0)
                assert self.cache.position.revision == self.staff.store.position.revision
                self.shown = len(self.lost)
                assert self._is_true(self.shown), "the cache still shows another store"
                self.receive(len(self.handles))
                for handle in self.handles:
                    assert handle.error is None
                    assert self.received[handle] == self._value(handle), "the newest value was not delivered"
                self.call(self._commit, [(0, "a", False)])
                self.call(self._commit, [(0, "a", False)])
                # A stream that is still held is left once it lags too long.
                self._pass(2 * LAG_LIMIT)
                assert not self.waits, "a wait never ended"
        finally:
            super().teardown()

    def _streams(self, kind: int) -> KindStreams:
        return self.staff.channel.streams(self.types[kind])


class ScopedNotifyMachine(NotifyMachine):
    """The same with a scope of the accounts, which updates enter and leave."""

    scoped = True


# What fails is shrunk for up to five minutes.
TestNotify = pytest.mark.timeout(400)(NotifyMachine.TestCase)
BOUND: Any = settings.default
TestNotify.settings = settings(BOUND, report_multiple_bugs=False)
TestScopedNotify = pytest.mark.wide(pytest.mark.timeout(400)(ScopedNotifyMachine.TestCase))
TestScopedNotify.settings = settings(BOUND, report_multiple_bugs=False, max_examples=max(3, BOUND.max_examples // 3))
