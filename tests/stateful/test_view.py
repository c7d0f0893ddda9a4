"""A state machine that compares views with a model: a view shows the state at its revision, in any order of items.

There are two types, and one of them may be a projection. Their streams advance independently of each other, and may
begin again with a snapshot that lags or jumps. Replies overtake the streams. The real `Cache` opens and closes views
at any point.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headway import indexes
from headway.cache import Cache, CachedType, Index, Informer, Projected, View, projection
from headway.events import ignore
from headway.resource import Bookmark, Changes, EndOfSnapshot, Key, Resource, ResourceType, SnapshotChunk
from headway.testing import LiveRun
from tests.helpers.resources import ACCOUNT, STORE, TEAM, Account
from tests.helpers.true_store import Reply, TrueStore

NAMES = ["ada", "grace", "mary"]
TYPES: dict[str, ResourceType[Any]] = {"team": TEAM, "account": ACCOUNT}
Write = tuple[ResourceType[Any], str, str]
writes = st.lists(
    st.tuples(st.sampled_from([TEAM, ACCOUNT]), st.sampled_from(NAMES), st.sampled_from(["write", "write", "delete"])),
    min_size=1,
    max_size=3,
)
sides = st.sampled_from(sorted(TYPES))

# The projection changes with every fourth revision only, so it does not contain most changes.
SLIM = projection(TEAM, Account, lambda team: Account(login=str(int(team.version) // 4)))


def digits(version: str) -> list[str]:
    return [f"{int(version) % 3}", f"{int(version) % 3}{int(version) % 2}"]


WHOLE_INDEXES: list[Index[Any, str]] = [
    indexes.by_many(TEAM, "digits", lambda team: digits(team.version)),
    indexes.by_many(ACCOUNT, "digits", lambda account: digits(account.version)),
]
SLIM_INDEX: Index[Any, str] = indexes.by(SLIM, "login", lambda slim: slim.data.login)


def plain(found: Sequence[Resource[Any] | Projected[Any]]) -> list[tuple[str, str, str, object]]:
    return [(each.name, each.version, each.uid, each.data) for each in found]


class OpenView:
    """A view that a task keeps open until `close`."""

    def __init__(self, cache: Cache, types: Sequence[CachedType[Any]], known: int) -> None:
        self.types = types
        self.asked_at = known
        self.view: View | None = None
        self._cache = cache
        self.closing = trio.Event()

    async def hold(self) -> None:
        async with self._cache.view(*self.types) as self.view:
            await self.closing.wait()
        self.view = None


class ViewMachine(LiveRun, RuleBasedStateMachine):
    """Drive informers and views, and compare each view with the true store."""

    sound = True

    @initialize(slim=st.booleans(), history=st.lists(writes, max_size=4))
    def begin(self, slim: bool, history: list[list[Write]]) -> None:
        self.store = TrueStore(STORE)
        for what in history:
            self.store.commit(1, what)
        self.forms: dict[str, CachedType[Any]] = {"team": SLIM if slim else TEAM, "account": ACCOUNT}
        self.indexes = [SLIM_INDEX, WHOLE_INDEXES[1]] if slim else WHOLE_INDEXES
        self.informer = {name: Informer(form, ignore) for name, form in self.forms.items()}
        self.sent_up_to: dict[str, int] = {}
        self.cache = Cache("teams", self.forms["team"], [ACCOUNT])
        for name in TYPES:
            self._snapshot(name, self.store.head)
        self.subscriptions = {
            form.name: self.informer[name].subscribe(
                [each for each in self.indexes if each.type is form], lambda *failed: pytest.fail(str(failed))
            )
            for name, form in self.forms.items()
        }
        self.cache.open(self.subscriptions)
        self.views: list[OpenView] = []
        self.replies: list[tuple[str, Reply]] = []

    def _snapshot(self, side: str, revision: int) -> None:
        informer = self.informer[side]
        informer.store.restart()
        informer.feed(SnapshotChunk(list(self.store.state(TYPES[side], revision).values())))
        informer.feed(EndOfSnapshot(self.store.position(revision)))
        self.sent_up_to[side] = revision

    # --- what happens ---

    @rule(gap=st.integers(1, 2), what=writes)
    def commit(self, gap: int, what: list[Write]) -> None:
        self.store.commit(gap, what)

    @rule(side=sides, commits=st.integers(1, 6), bookmark=st.booleans())
    def deliver(self, side: str, commits: int, bookmark: bool) -> None:
        """Deliver the next commits in one item, and perhaps a bookmark beyond them."""
        later = [revision for revision in self.store.revisions if revision > self.sent_up_to[side]]
        if not later:
            return
        until = later[:commits][-1]
        if changes := self.store.changes(TYPES[side], self.sent_up_to[side], until):
            self.informer[side].feed(Changes(changes))
            self.sent_up_to[side] = changes[-1].revision
        if bookmark:
            self.informer[side].feed(Bookmark(self.store.position(until)))
            self.sent_up_to[side] = until
        self.run_until_blocked()

    @rule(side=sides, back=st.sampled_from([0, 0, 1, 3]))
    def begin_anew(self, side: str, back: int) -> None:
        """Begin a new stream with the snapshot of a server that may lag."""
        revisions = self.store.revisions
        self._snapshot(side, revisions[max(0, len(revisions) - 1 - back)])
        self.run_until_blocked()

    @rule(
        side=sides,
        name=st.sampled_from(NAMES),
        verb=st.sampled_from(["write", "delete", "nothing"]),
        now=st.booleans(),
        before=st.just([]) | writes,
    )
    def write(self, side: str, name: str, verb: str, now: bool, before: list[Write]) -> None:
        """Write as the controller, after another writer. The reply may come before the change or long after it."""
        if before:
            self.store.commit(1, before)
        if verb != "nothing":
            self.store.commit(1, [(TYPES[side], name, verb)])
        reply = self.store.reply(TYPES[side], name)
        if now:
            self.informer[side].reply(*reply)
            self.run_until_blocked()
        else:
            self.replies.append((side, reply))

    @precondition(lambda self: self.replies)
    @rule(data=st.data())
    def deliver_reply(self, data: st.DataObject) -> None:
        side, reply = self.replies.pop(data.draw(st.integers(0, len(self.replies) - 1), label="which"))
        self.informer[side].reply(*reply)
        self.run_until_blocked()

    # --- views ---

    @precondition(lambda self: len(self.views) < 3)
    @rule(names=st.sets(sides, min_size=1))
    def open(self, names: set[str]) -> None:
        known = max(self.informer[name].store.newest for name in names)
        opened = OpenView(self.cache, [self.forms[name] for name in sorted(names)], known)
        self.views.append(opened)
        self.nursery.start_soon(opened.hold)
        self.run_until_blocked()

    @precondition(lambda self: any(each.view for each in self.views))
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        opened = data.draw(st.sampled_from([each for each in self.views if each.view]), label="which")
        self._close(opened)

    def _close(self, opened: OpenView) -> None:
        self.views.remove(opened)
        opened.closing.set()
        self.run_until_blocked()

    @invariant()
    def views_show_their_revision(self) -> None:
        self.sound = False
        for opened in getattr(self, "views", []):
            if opened.view is not None:
                assert opened.view.pinned_at >= opened.asked_at
                for type in opened.types:
                    self._check(opened.view, type)
        held = [each for each in getattr(self, "subscriptions", {}).values() if each.pins]
        assert bool(held) == bool(getattr(self, "views", []))
        self.sound = True

    def _check(self, view: View, type: CachedType[Any]) -> None:
        side = next(name for name, form in self.forms.items() if form is type)
        assert view.revision(type) == view.pinned_at
        there = self._truth(side, view.pinned_at)
        assert plain(view.list(type)) == plain([there[key] for key in sorted(there)])
        for name in NAMES:
            found = view.get(type, name)
            assert plain([found] if found else []) == plain([r for key, r in there.items() if key[2] == name])
        for declared in self.indexes:
            if declared.type is type:
                self._check_index(view, declared, there)

    def _check_index(self, view: View, declared: Index[Any, str], there: dict[Key, Any]) -> None:
        values = {key: declared.function(each) for key, each in there.items()}
        values = {key: [each] if declared.single else each for key, each in values.items()}
        every = sorted({value for each in values.values() for value in each})
        for value in [*every, "none"]:
            expected = [there[key] for key in sorted(there) if value in values[key]]
            assert plain(view.index(declared, value)) == plain(expected)
            above = dict.fromkeys(
                key for n in range(len(value) + 1) for key in sorted(there) if value[:n] in values[key]
            )
            assert plain(view.index_parents(declared, value)) == plain([there[key] for key in above])
        for prefix in ("", "1", "2"):
            in_order = dict.fromkeys(
                key for value in every if value.startswith(prefix) for key in sorted(there) if value in values[key]
            )
            assert plain(view.index_prefix(declared, prefix)) == plain([there[key] for key in in_order])

    def _truth(self, side: str, revision: int) -> dict[Key, Any]:
        form = self.forms[side]
        stored = self.store.state(TYPES[side], revision)
        return {key: form.view(self.informer[side].cached_form(each)) for key, each in stored.items()}

    @invariant()
    def the_cache_is_what_it_would_be_without_views(self) -> None:
        """Views do not change what the cache itself shows."""
        for side, informer in getattr(self, "informer", {}).items():
            if not informer.store.ahead():
                expected = self._truth(side, informer.store.frontier)
                held = {key: self.forms[side].view(each) for key, each in informer.store.entries.items()}
                assert {key: plain([each]) for key, each in held.items()} == {
                    key: plain([each]) for key, each in expected.items()
                }

    def teardown(self) -> None:
        """Check that every requested view is open after the streams have delivered everything."""
        try:
            if self.sound:
                self._end()
        finally:
            super().teardown()

    def _end(self) -> None:
        for side in getattr(self, "informer", {}):
            self.deliver(side, 10_000, True)
        for opened in list(getattr(self, "views", [])):
            assert opened.view is not None
            self.views_show_their_revision()
            self._close(opened)


TestView = pytest.mark.timeout(400)(ViewMachine.TestCase)
# The hard case is a waiting view while a reply, an earlier change and a snapshot meet at one key.
TestView.settings = settings(
    max_examples=2 * settings().max_examples,
    stateful_step_count=max(40, settings().stateful_step_count),
    report_multiple_bugs=False,
)
