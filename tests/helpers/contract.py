"""A checker of C1 to C7 in each reconcile and mapper call, against the store's own record."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import headway
from headway.cache import CacheReader
from headway.controller import Definition
from headway.engine import Host, built_in
from headway.events import DeletionsUnknown, Primed, Priming, RunEnded, RunStarted, ignore
from headway.resource import Key, Kind, Registry, ResourceType, TypeName, pb, position, unseen
from headway.storage import Fence, MemoryBackend
from headway.testing import Call, ScriptedChannel
from tests.helpers.lost_history import LostHistory
from tests.helpers.pools import PoolsApp
from tests.helpers.truth import Commit, Record, RecordingBackend, RecordingSqlite


def builtin() -> Iterator[Definition]:
    """Yield the controllers that every engine runs."""
    for make in built_in():
        extension = make(Host(MemoryBackend(), Registry(), ignore))
        for app in (*extension.apps, *extension.late_apps):
            yield from app.controllers.values()


BUILTIN = {each.full_name for each in builtin()}
"""The names of the controllers that every engine runs."""
RESERVED = {type.name.group for type in Registry()}
"""The groups of the types that every engine has."""


def _state(message: pb.Resource) -> tuple[str, str]:
    """Return what tells a state of a resource from those of any other history."""
    return message.generation, message.version


class Seen(NamedTuple):
    """A reconcile as it started."""

    name: str
    term: int
    frontiers: Mapping[TypeName, int]


class Witness:
    """Checks each call of the reconciler and the mappers of a `PoolsApp`. Raises AssertionError with the clause.

    It also adds each finding to ``broken``, because the engine retries after an exception of a reconciler.
    """

    def __init__(self, pools: PoolsApp, channel: ScriptedChannel, store: RecordingBackend | RecordingSqlite) -> None:
        self.pools, self.channel, self.store = pools, channel, store
        pools.around, pools.on_mapping = self.reconciling, self.mapping
        self.events: list[object] = []
        # The index of the first event of the present process.
        self.process_from = 0
        self.reconciles: list[Seen] = []
        self._completed: list[Seen] = []
        self.broken: list[str] = []
        # The revision up to which earlier processes wrote.
        self._inherited = 0
        # The starting revision of the present run, and of the first one that began in this process.
        self.started = self.began = 0
        # The highest revision that any type of the present run showed when it was primed.
        self._cut = 0
        # The last change that was stored when the first run began.
        self._stored = 0
        # The first starting revision of any run of the controller, also of one that was never primed.
        self._first_raised = 0
        self._running: list[tuple[int, str]] = []
        # Until a run begins on the content that the store was put back to: what the store has lost.
        self.lost: LostHistory | None = None
        self._resumes = False
        # The number of reconciles that began with the cache of such a history.
        self.looks_back = 0
        # The revision of the backup that the store was restored from last. A restored store has no history before it.
        self.restored_to = 0
        # The number of states of such a history that were mapped in a later one.
        self.mapped_lost = 0
        # The states of histories that the store has lost, by their generation and version.
        self._of_lost: set[tuple[str, str]] = set()
        # The keys that such a history leaves to the runs on the store's new content (C6).
        self._owed: set[str] = set()
        # By kind: the revisions after which, and up to which, a run has not found deletions.
        self._unknown_deletions: dict[Kind, list[tuple[int, int]]] = {}
        # By type and key: the lowest version that a later read may return.
        self._lowest: dict[tuple[TypeName, Key], int] = {}
        # Every version that the cache of this process has shown, and those of earlier processes.
        self._held: set[tuple[Kind, Key, int]] = set()
        self._held_earlier: set[tuple[Kind, Key, int]] = set()

    def report(self, event: object) -> None:
        """Record an event, unless it is about Headway's own controllers. Pass this to `open_engine`."""
        about = getattr(event, "type", None)
        if getattr(event, "controller", "") in BUILTIN or (isinstance(about, TypeName) and about.group in RESERVED):
            return
        self.events.append(event)
        if isinstance(event, Priming):
            self._first_raised = self._first_raised or event.starting_revision
        if isinstance(event, DeletionsUnknown):
            primed = [each.revision for each in self.events_of(Primed) if each.type == event.type]
            self._unknown_deletions.setdefault(event.type.unversioned, []).append((event.settled, primed[-1]))
        if isinstance(event, RunStarted):
            if self.lost is not None:
                self._begin_era(event)
            self.started, self._cut = event.starting_revision, self._highest_primed(event)
            if not self.began and self.store.commits:
                self._stored = self.store.commits[-1].revision
            self.began = self.began or self.started

    def put_back(self) -> None:
        """Compare with what the store has now, because an operator is about to replace it by a backup.

        The run that goes on may still see it. No run may begin before `resume`.
        """
        self.lost, self._resumes = LostHistory(self.pools, self.channel, self.store), False
        self._unknown_deletions.clear()

    def resume(self) -> None:
        """Allow runs to begin. Compare with the store's new content from the next run on."""
        self._resumes = True

    def _begin_era(self, event: RunStarted) -> None:
        if not self._resumes:
            # A report must not raise.
            self.broken.append(f"C3: term {event.term} began on a store that was put back and not accepted")
        assert self.lost is not None
        commits = [commit for commit in self.lost.commits if commit.revision > self.restored_to]
        self._of_lost |= {_state(commit.new) for commit in commits if commit.new is not None}
        self._owed |= self._left_by(commits)
        self._lowest.clear()
        self._held.clear()
        self._held_earlier.clear()
        self.reconciles.clear()
        self._completed.clear()
        self.lost, self.began, self._inherited = None, 0, 0

    def _highest_primed(self, begun: RunStarted) -> int:
        """Return the highest revision of the types of a run that has just begun, as they were primed for it."""
        before = [each for each in self.events if getattr(each, "controller", "") == begun.controller]
        ended = [number for number, each in enumerate(before[:-1]) if isinstance(each, RunStarted | RunEnded)]
        primed = [each for each in before[ended[-1] if ended else 0 :] if isinstance(each, Primed)]
        return max((each.revision for each in primed), default=0)

    def end_process(self) -> None:
        """Note that the process has ended. The next one knows only what the store has (C6)."""
        assert not self._running, f"C7, C10: {self._running} go on after the end of the engine"
        self.began, self.process_from = 0, len(self.events)
        self._inherited = self.store.position.revision if self.lost is None else self.lost.head
        self._owed.clear()
        self._held_earlier |= self._held
        self._held.clear()
        # The starting revision of the next run is above all of these. A false bookmark may pretend to have reached it.
        self._lowest.clear()

    def look(self, cache: CacheReader) -> None:
        """Check the present content of a cache, outside of any call."""
        with self.naming():
            self._sees_the_truth(cache)

    def events_of(self, kind: type[Any]) -> list[Any]:
        """Return the events of a type so far."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def record(self) -> Record:
        """What the cache of the present run may show: the store, or what it has lost while that run goes on."""
        return self.store if self.lost is None else self.lost

    def is_honest(self, type: ResourceType[Any]) -> bool:
        """Return True if the cache of a type cannot be wrong because of a false bookmark."""
        return self.channel.is_honest(type) if self.lost is None else self.lost.is_honest(type)

    @property
    def running(self) -> int:
        """The number of reconciles under way."""
        return len(self._running)

    def check(self) -> None:
        """Raise AssertionError with all findings so far."""
        assert not self.broken, "\n".join(self.broken)

    # --- in the user's functions ---

    @contextmanager
    def reconciling(self, rt: headway.Runtime, request: headway.Request) -> Iterator[None]:
        """Check the reconcile that runs in the block."""
        name = request.id.name
        with self.naming():
            self._one_at_a_time(rt.term, name)
            self._sees_the_truth(rt.cache)
            self._sees_what_triggered_it(rt.cache, request)
            self._is_not_behind_its_predecessor(rt)
            self._knows_the_outcome_of_every_write(rt)
        self.looks_back += self.lost is not None
        seen, lost = Seen(name, rt.term, self._frontiers(rt.cache)), self.lost
        self.reconciles.append(seen)
        self._running.append((rt.term, name))
        try:
            yield
        finally:
            self._running.remove((rt.term, name))
        # A reconcile that was canceled, or has failed, has not acted on what it saw. One that ends after the store was
        # put back has acted on what the store has lost (seed 876927).
        if self.lost is lost or lost is None:
            self._completed.append(seen)
        if self.lost is None and lost is None:
            self._owed.discard(name)

    def mapping(self, resource: headway.Resource[Any], cache: CacheReader) -> None:
        """Check one call of a mapper."""
        with self.naming():
            self._sees_the_truth(cache)
            least = int(resource.version)
            if self.lost is None and _state(resource.message()) in self._of_lost:
                least, self.mapped_lost = self.started, self.mapped_lost + 1
            low = min(self._frontiers(cache).values())
            assert low >= least, f"C4: {resource.id} at {resource.version} was mapped at {low}, below {least}"

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Record the exception of the block, because the engine may swallow it. Its looks are not the reconcile's."""
        try:
            with unseen():
                yield
        except Exception as error:
            self.broken.append(f"{type(error).__name__}: {error}")
            raise

    # --- the clauses ---

    def _one_at_a_time(self, term: int, name: str) -> None:
        others = self._running
        assert all(name != running for _, running in others), f"C7: {name} is reconciled twice at once"
        assert len(others) < self.pools.concurrency, f"C7: {len(others)} others are being reconciled"
        assert all(term == running for running, _ in others), f"C7: runs {others} overlap with {term}"

    def _sees_the_truth(self, cache: CacheReader) -> None:
        """Check that the cache is primed, and holds the state at its frontier and the acknowledged writes."""
        types: tuple[ResourceType[Any], ...] = self.pools.types
        for resource_type in types:
            frontier = cache.revision(resource_type)
            assert frontier >= self.started, f"C1: {resource_type.name} is at {frontier}, below {self.started}"
            assert frontier >= self._cut, f"C1: {resource_type.name} is at {frontier}, below the cut at {self._cut}"
            if self.lost is not None:
                head = self.lost.head
                assert frontier <= head, f"C2: {resource_type.name} is at {frontier} of a history that ended at {head}"
            listed = cache.list(resource_type)
            held = {each.id.key: int(each.version) for each in listed}
            self._shows_what_is_stored(resource_type, listed)
            honest = self.is_honest(resource_type)
            self._does_not_go_back(resource_type.name, held, frontier if honest else 0)
            replies = self._replies_since(resource_type.kind)
            self._shows_own_writes(resource_type.kind, held, except_for=replies, honest=honest)
            if honest:
                expected = self._versions(resource_type, frontier) | self._ahead(resource_type.kind, frontier)
                expected |= {key: held.get(key, 0) for key in replies if held.get(key, 0) in replies[key]}
                there = {key: version for key, version in expected.items() if version}
                assert held == there, f"C1, C2: {resource_type.name} at {frontier} holds {held}, not {there}"
        self._has_its_index(cache)

    def _shows_what_is_stored(self, type: ResourceType[Any], listed: Iterable[headway.Resource[Any]]) -> None:
        """Check each resource against the commit of its version: another reader may have changed what it was handed."""
        if self.lost is not None:
            # A version of the lost history may also be one of the present history, whose replies the run shows.
            return
        committed = {(each.key, each.revision): each.new for each in self.record.commits if each.kind == type.kind}
        for each in listed:
            stored = committed.get((each.id.key, int(each.version)))
            if stored is not None:
                shown = (each.data, each.metadata, dict(each.status))
                true = type.view(stored)
                assert shown == (true.data, true.metadata, dict(true.status)), (
                    f"C9: {each.id} at {each.version} shows {shown}, which no writer has stored"
                )

    def _has_its_index(self, cache: CacheReader) -> None:
        by_pool: dict[str, list[str]] = {}
        for member in cache.list(self.pools.member):
            by_pool.setdefault(member.data.pool, []).append(member.name)
        for pool, names in by_pool.items():
            indexed = sorted(each.name for each in cache.index(self.pools.by_pool, pool))
            assert indexed == sorted(names), f"C1, C2: the index has {indexed} under {pool!r}, the cache {names}"

    def _does_not_go_back(self, name: TypeName, held: Mapping[Key, int], frontier: int) -> None:
        for key, version in held.items():
            lowest = self._lowest.get((name, key), 0)
            assert version >= lowest, f"C2: {name} {key[2]} is at {version}, and was at or deleted before {lowest}"
            self._lowest[name, key] = version
            self._held.add((name.unversioned, key, version))
        for (other, key), lowest in self._lowest.items():
            if other == name and key not in held:
                self._lowest[other, key] = max(lowest, frontier + 1)

    def _shows_own_writes(self, kind: Kind, held: Mapping[Key, int], except_for: Container[Key], honest: bool) -> None:
        for key, revision, there in self._acknowledged(kind):
            if key in except_for:
                continue
            if not honest and revision <= self._inherited:
                # Only a stream brings the writes of an earlier process, and a false bookmark may come before them.
                continue
            version = held.get(key, 0)
            if there:
                # After a false bookmark, a cache without the resource must take it for deleted.
                unseen = version < revision and (version or (honest and not self._deleted_after(kind, key, revision)))
                assert not unseen, f"C5: {key[2]} written at {revision} is unseen"
            else:
                assert not version or version > revision, f"C5: {key[2]} deleted at {revision} is still seen"

    def _deleted_after(self, kind: Kind, key: Key, revision: int) -> bool:
        commits = self.record.commits_of(kind, self.pools.ranges[kind])
        return any(each.new is None and each.revision > revision and each.key == key for each in commits)

    def _sees_what_triggered_it(self, cache: CacheReader, request: headway.Request) -> None:
        low = min(self._frontiers(cache).values())
        for reason in request.reasons:
            assert reason.revision <= low, f"C4: {request.id} was triggered by {reason} and sees {low}"

    def _is_not_behind_its_predecessor(self, rt: headway.Runtime) -> None:
        raised = self._all_raised()
        start = max(revision for term, number, revision in raised if term == rt.term and number == 1)
        for commit in self.record.commits:
            if commit.fence is not None and self.is_ours(commit.fence) and commit.fence.term < rt.term:
                assert commit.revision < start, f"C3: {commit.fence} wrote at {commit.revision}, after {start}"
        low = min(self._frontiers(rt.cache).values())
        assert low >= start, f"C3: the run of {rt.term} began at {start} and sees {low}"

    def _knows_the_outcome_of_every_write(self, rt: headway.Runtime) -> None:
        raised = self._all_raised()
        low = min(self._frontiers(rt.cache).values())
        for fence in (*([] if self.lost is None else self.lost.unknown), *self.channel.unknown):
            assert fence is not None, "C8: a write had no fence"
            resolving = [revision for *above, revision in raised if above > [fence.term, fence.number]]
            assert resolving, f"C5: a write under {fence.number} is not resolved"
            assert min(resolving) <= low, f"C5: it was resolved at {min(resolving)}, and the cache is at {low}"

    def last_changes_were_seen(self) -> None:
        """Check C6 once the engine is idle: each resource's keys were reconciled after its last change."""
        assert not self._owed, f"C6: {sorted(self._owed)} were not reconciled after changes that the store has lost"
        ranges = [(type.kind, self.pools.ranges[type.kind]) for type in self.pools.types]
        # A pool needs no reconcile because of the statuses that its own reconcile has written.
        commits = [
            commit
            for kind, range in ranges
            for commit in self.store.commits_of(kind, range)
            if not self.pools.states_alone(commit)
        ]
        last = {(commit.kind, commit.key): commit for commit in commits}
        for commit in last.values():
            now, before = self._names(commit.kind, commit.new), self._names(commit.kind, commit.old)
            if self.channel.opened.count((commit.kind, False)) > 1 and not self._held_before(commit):
                # A state that came and went while a stream could not resume is in no snapshot, so no cache held it.
                before = set()
            if commit.revision <= self.restored_to:
                # The runs on the restored store cannot know its old state.
                before = set()
            if commit.kind in self.pools.added and not self._held_before(commit):
                # It may have changed before its type was watched.
                before = set()
            unknown = self._unknown_deletions.get(commit.kind, ())
            if commit.new is None and any(after < commit.revision <= until for after, until in unknown):
                before = set()
            if commit.new is None and commit.revision <= self._first_raised:
                # No run of the controller had begun, so it has no deletion to find.
                before = set()
            early = commit.revision <= self._stored and not self._held_before(commit)
            if commit.new is not None and (commit.revision <= self.began or early):
                # The old state was replaced before a run began that could have acted on it. When a run begins, its
                # caches may be ahead of its starting revision.
                before = set()
            for name in (now | before) - self._reconciled_after(commit):
                raise AssertionError(
                    f"C6: {name} was not reconciled after {commit.kind[1]} {commit.key[2]} changed at {commit.revision}"
                )

    # --- facts for the checks ---

    def _left_by(self, commits: list[Commit]) -> set[str]:
        """Return the names that these last changes of a history concern, if its runs have not reconciled them since."""
        left: set[str] = set()
        for kind in {type.kind for type in self.pools.types}:
            counted = [each for each in commits if each.kind == kind and not self.pools.states_alone(each)]
            within = [commit.within(self.pools.ranges[kind]) for commit in counted]
            last = {commit.key: commit for commit in within if commit is not None}
            for commit in last.values():
                # The run may not have received a change that no look at its cache has shown.
                if commit.new is not None and (commit.kind, commit.key, commit.revision) in self._held:
                    before = commit.old if self._held_before(commit) else None
                    names = self._names(kind, commit.new) | self._names(kind, before)
                    left |= names - self._reconciled_after(commit)
        return left

    def _reconciled_after(self, commit: Commit) -> set[str]:
        """Return the names whose reconciles have seen a change."""
        return {
            seen.name
            for seen in self._completed
            for type_name, frontier in seen.frontiers.items()
            if type_name.unversioned == commit.kind and frontier >= commit.revision
        }

    def _held_before(self, commit: Commit) -> bool:
        if commit.old is None:
            return False
        # No checkpoint passes a deletion that a process has not acted on, so the next one finds it in the history. But
        # a process begins without the types that another one has added, and its checkpoints pass their deletions.
        earlier = commit.new is None and commit.kind not in self.pools.added
        held = self._held | self._held_earlier if earlier else self._held
        return (commit.kind, commit.key, int(commit.old.version)) in held

    @staticmethod
    def is_ours(fence: Fence) -> bool:
        """Return True if a fence belongs to a controller of the app, and not to one of Headway's."""
        return fence.controller.startswith("test/")

    def _names(self, kind: Kind, message: Any) -> set[str]:
        return set() if message is None else self.pools.concerned(kind, message)

    def _frontiers(self, cache: CacheReader) -> dict[TypeName, int]:
        return {each.name: cache.revision(each) for each in self.pools.types}

    def _acknowledged(self, kind: Kind) -> Iterator[tuple[Key, int, bool]]:
        """Return the writes to the store whose history the cache has."""
        return self._replies(kind, self.channel.done if self.lost is None else self.lost.done)

    def _replies_since(self, kind: Kind) -> dict[Key, set[int]]:
        """Return the versions of the writes to a store that was put back, by the run that goes on."""
        found: dict[Key, set[int]] = {}
        if self.lost is not None:
            for key, revision, there in self._replies(kind, self.channel.done):
                found.setdefault(key, set()).add(revision if there else 0)
        return found

    def _replies(self, kind: Kind, done: Iterable[Call]) -> Iterator[tuple[Key, int, bool]]:
        for call in done:
            if call.known and call.method in ("Write", "WriteStatus", "Delete"):
                id = call.request.resource.id if call.method == "Write" else call.request.id
                if (id.type.group, id.type.kind) == kind:
                    key = (id.tenancy.partition, id.tenancy.namespace, id.name)
                    at = position(call.reply.position)
                    assert at is not None
                    stored = call.reply.resource
                    # A status that is stored already needs no commit, nor does the deletion of another incarnation than
                    # the stored one. The reply is then at any later position.
                    revision = at.revision if stored is None else int(stored.version)
                    yield key, revision, stored is not None and self.pools.ranges[kind].admits(stored)

    def _all_raised(self) -> list[tuple[int, int, int]]:
        done = [*([] if self.lost is None else self.lost.done), *self.channel.done]
        return [self._raised(call) for call in done if call.method == "Raise" and call.known]

    def _versions(self, type: ResourceType[Any], revision: int) -> dict[Key, int]:
        return self.record.versions(type, revision, self.pools.ranges[type.kind])

    def _ahead(self, kind: Kind, frontier: int) -> dict[Key, int]:
        ahead: dict[Key, tuple[int, int]] = {}
        for key, revision, there in self._acknowledged(kind):
            if revision > frontier:
                ahead[key] = max(ahead.get(key, (0, 0)), (revision, revision if there else 0))
        return {key: version for key, (_, version) in ahead.items()}

    @staticmethod
    def _raised(call: Call) -> tuple[int, int, int]:
        fence = call.reply.fence
        at = position(call.reply.position)
        assert at is not None
        return fence.term, fence.number, at.revision
