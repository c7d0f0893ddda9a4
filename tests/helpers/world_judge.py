"""A checker of the contract's clauses in a simulated world, against the world's store.

A `WorldJudge` checks every reconcile and every call of a mapper, and its `StoreGuard` every commit. They add what they
find to ``broken``, because the engine retries after an exception of a reconciler.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from grpclib.const import Status

import headway
from headway import events
from headway.cache import Cache, CachedType, CacheReader
from headway.client import client_error
from headway.controller import Definition
from headway.errors import OutcomeUnknown
from headway.resource import Key, Kind, pb
from headway.sharding import Sharded, shard_of
from headway.testing import simulation
from headway.testing.simulation import Committed, Reconcile, Reconciled, Step, faults
from headway.testing.simulation._trace import named
from headway.testing.simulation.world import RECONCILE
from tests.helpers.service_errors import failed
from tests.helpers.world_guard import Scope, StoreGuard, content_of


class _Running(NamedTuple):
    """A reconcile under way."""

    process: str
    life: int
    scope: Scope
    key: Key
    term: int
    reconcile: Reconcile


class WorldJudge:
    """The judge of a world.

    Attributes:
        broken: a message for each violation, with its clause.
        looked: the number of checks of each clause.
        acknowledged: the revision of the last write that was acknowledged to users, by kind and key.
    """

    world: simulation.World

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.looked: Counter[str] = Counter()
        self._frontiers: dict[tuple[str, Scope, int], dict[Kind, int]] = {}
        self._running: list[_Running] = []
        self._definitions: dict[str, tuple[str, Definition]] = {}
        self.acknowledged: dict[tuple[Kind, Key], int] = {}
        self._guard: StoreGuard

    def begin(self, world: simulation.World) -> None:
        """Begin to judge a world in which nothing runs yet."""
        self.world = world
        self._guard = StoreGuard(world, self._must)

    def _must(self, clause: str, holds: object, otherwise: str) -> None:
        self.looked[clause] += 1
        if not holds:
            self.broken.append(f"{clause}: {otherwise}")

    # --- around a program ---

    def over(self, app: headway.App, process: simulation.Process) -> headway.App:
        """Return the program with this judge around its reconcilers."""
        for name, definition in app.controllers.items():
            self._definitions[name] = app.name, definition
            app.controllers[name] = dataclasses.replace(
                definition, reconcile=self._reconciler(app.name, definition, process)
            )
        return app

    def _reconciler(self, app: str, definition: Definition, process: simulation.Process) -> Any:
        async def reconcile(rt: headway.Runtime, request: headway.Request[Any]) -> Any:
            with self._reconciling(app, definition, process, rt, request):
                return await definition.reconcile(rt, request)

        return reconcile

    def mapping(self, resource: headway.Resource[Any], cache: CacheReader, *types: CachedType[Any]) -> None:
        """Check what a call of a mapper sees of each type."""
        for type in types:
            frontier = cache.revision(type)
            self._must(
                "C4",
                frontier >= int(resource.version),
                f"{resource.id} at {resource.version} was mapped when {type} was at {frontier}",
            )
            self._sees_the_truth(cache, type)

    @contextmanager
    def _reconciling(
        self,
        app: str,
        definition: Definition,
        process: simulation.Process,
        rt: headway.Runtime,
        request: headway.Request[Any],
    ) -> Iterator[None]:
        reconcile, cache = RECONCILE.get(), _untraced(rt.cache)
        assert reconcile is not None
        scope = f"{app}/{definition.name}", _member(definition, request.id.key)
        current = _Running(process.name, process.life, scope, request.id.key, rt.term, reconcile)
        # The first violation causes countless others.
        if process.life and not self.broken:
            self._one_at_a_time(current, definition)
            for type in definition.types:
                self._is_primed(current, cache, type)
                self._sees_the_truth(cache, type)
                self._shows(current, cache, type, self._steps_of(current))
            self._sees_what_triggered_it(definition, cache, request)
            self._knows_the_outcome_of_every_write(current, definition, cache)
        self._running.append(current)
        try:
            yield
            own = [each for each in self.world.trace.steps[reconcile.steps :] if each.by is reconcile]
            for type in definition.types:
                self._shows(current, cache, type, own)
        finally:
            self._running.remove(current)
            for type in () if self.broken else definition.types:
                for each in cache.list(type):
                    _scribble(each)

    # --- the clauses ---

    def _is_primed(self, current: _Running, cache: CacheReader, type: CachedType[Any]) -> None:
        """Check C1, C2 and C3: the cache is not below the start of its run, and never goes back."""
        frontier, start = cache.revision(type), self._guard.starts.get((current.scope, current.term))
        what = f"{current.reconcile} in term {current.term}: {type} is at {frontier}"
        self._must("C3", start is not None, f"{what}, and its run has raised no fence")
        for clause in ("C1", "C3"):
            self._must(clause, frontier >= (start or 0), f"{what}, and its run began at {start}")
        seen = self._frontiers.setdefault((current.process, current.scope, current.term), {})
        before = seen.get(type.kind, 0)
        self._must("C2", frontier >= before, f"{what}, and was at {before}")
        seen[type.kind] = max(before, frontier)

    def _sees_the_truth(self, cache: CacheReader, type: CachedType[Any]) -> None:
        """Check C1, C2 and C9: the cache holds the state at its frontier and later writes of controllers, unchanged."""
        frontier, kind = cache.revision(type), type.kind
        held = {each.id.key: each for each in cache.list(type)}
        there = {key: int(each.version) for (of, key), each in self.world.store.at(frontier).items() if of == kind}
        for key in {*held, *there}:
            version = int(held[key].version) if key in held else 0
            if version != there.get(key, 0):
                # The reply to a write without effect has the resource that another writer stored.
                answered = any(
                    each.write and (each.kind, each.key, each.outcome, each.revision) == (kind, key, "done", 0)
                    for each in self.world.trace.steps
                )
                later = [each for each in self._commits(kind, key) if each.revision > frontier]
                known = [0 if each.new is None else each.revision for each in later if each.by or answered]
                what = f"a cache at {frontier} has {named(kind, key)} at {version}, where it was at {there.get(key, 0)}"
                self._must("C2", version in known, f"{what}; controllers have since written or received {known}")
            elif version:
                self.looked["C2"] += 1
            if version:
                now, stored = content_of(held[key].message()), self._guard.contents.get((kind, key, version))
                self._must("C9", stored in (now, None), f"{named(kind, key)} at {version} is handed out changed")

    def _commits(self, kind: Kind, key: Key) -> list[Committed]:
        return [each for each in self.world.trace.commits if (each.kind, each.key) == (kind, key)]

    def _sees_what_triggered_it(
        self, definition: Definition, cache: CacheReader, request: headway.Request[Any]
    ) -> None:
        low = min(cache.revision(type) for type in definition.types)
        for reason in request.reasons:
            self._must("C4", reason.revision <= low, f"{request.id} was triggered by {reason} and sees {low}")

    def _steps_of(self, current: _Running) -> list[Step]:
        by = current.reconcile
        return [
            each
            for each in self.world.trace.steps
            if (each.by.process, each.by.controller, each.by.term) == (by.process, by.controller, current.term)
        ]

    def _shows(self, current: _Running, cache: CacheReader, type: CachedType[Any], steps: list[Step]) -> None:
        """Check C5: the cache shows each write that was acknowledged to the run, or a later state."""
        for step in steps:
            if step.outcome != "done" or not step.revision or step.kind != type.kind:
                continue
            commits = self._commits(step.kind, step.key)
            found = next((each for each in cache.list(type) if each.id.key == step.key), None)
            seen = int(found.version) if found is not None else 0
            later = any(each.new is None and each.revision >= step.revision for each in commits)
            shown = seen >= step.revision or (not seen and later)
            self._must(
                "C5", shown, f"{current.reconcile}: {step} was acknowledged, and {named(step.kind, step.key)} is {seen}"
            )

    def _knows_the_outcome_of_every_write(self, current: _Running, definition: Definition, cache: CacheReader) -> None:
        """Check C5: every write with an unknown outcome is resolved by a commit that the cache shows."""
        low = min(cache.revision(type) for type in definition.types)
        for step in self._steps_of(current):
            same = _member(definition, step.by.key) == current.scope[1]
            if step.write and step.kind[1] and same and _is_unknown(step):
                resolved = [
                    each for each in self._guard.raised if each.scope == current.scope and each.steps >= step.number
                ]
                what = f"{current.reconcile} begins after {step}"
                self._must("C5", resolved, f"{what}, which is not resolved")
                if resolved:
                    at = resolved[0].revision
                    self._must("C5", low >= at, f"{what}, which was resolved at {at}, and its cache is at {low}")

    def _one_at_a_time(self, current: _Running, definition: Definition) -> None:
        mine = [each for each in self._running if (each.process, each.life) == (current.process, current.life)]
        mine = [each for each in mine if each.scope[0] == current.scope[0]]
        self._must("C7", all(each.key != current.key for each in mine), f"{current.reconcile}, while it still does")
        most = definition.concurrency
        self._must("C7", len(mine) < most, f"{current.reconcile}, beside {len(mine)} others")
        terms = {each.term for each in mine if each.scope == current.scope} | {current.term}
        self._must("C7", len(terms) == 1, f"{current.reconcile}: runs of terms {terms} overlap")
        if any(isinstance(each, faults.LeaseLost) for each in self.world.struck):
            # The holder learns at its next call that its lease has ended.
            return
        alive = {process.name: process.life for process in self.world.processes}
        others = [
            each
            for each in self._running
            if each.scope == current.scope and each.process != current.process and alive[each.process] == each.life
        ]
        # A process that waits for a reply has stalled. It may still run code, but none of its writes is stored.
        stalled = {each.by.process for each in self.world.trace.steps if each.outcome == "under way"}
        running = [str(each.reconcile) for each in others if each.process not in stalled]
        self._must("C7", not running, f"{current.reconcile}, while {running}")

    # --- at the end of a step, and of a world ---

    def check(self) -> None:
        """Check C11: no acknowledged write is lost. Raises AssertionError with everything that is broken so far."""
        commits = {(each.kind, each.key, each.revision) for each in self.world.trace.commits}
        last: dict[tuple[Kind, Key], Committed] = {(each.kind, each.key): each for each in self.world.trace.commits}
        now = self.world.store.now
        for place, each in last.items():
            stored = int(now[place].version) if place in now else 0
            wanted = 0 if each.new is None else each.revision
            self._must(
                "C11", stored == wanted, f"{named(*place)} is at {stored}, where the last commit made it {wanted}"
            )
        acknowledged = [
            (each.kind, each.key, each.revision) for each in self.world.trace.steps if each.outcome == "done"
        ]
        acknowledged += [(*place, revision) for place, revision in self.acknowledged.items()]
        for kind, key, revision in acknowledged:
            if revision and kind[1]:
                what = f"{named(kind, key)} was acknowledged at {revision}, and no commit made it so"
                self._must("C11", (kind, key, revision) in commits, what)
        assert not self.broken, "\n".join(dict.fromkeys(self.broken))

    def every_last_change_was_seen(self, owes: Mapping[str, Mapping[Kind, Callable[[pb.Resource], list[Key]]]]) -> None:
        """Check C6 when the world is idle: some reconcile of each key succeeded with its last changes in its cache.

        ``owes`` has a function for each controller and kind. It returns the keys to reconcile for a state.
        """
        trace = self.world.trace
        done = [each.began for each in trace.entries if isinstance(each, Reconciled) and each.result == "done"]
        # A run that could not know of earlier deletions has reported that.
        unknown = {
            (event.controller.rpartition("/")[2], event.type.unversioned)
            for event in trace.events
            if isinstance(event, events.DeletionsUnknown)
        }
        refused = {fault.type for fault in self.world.struck if isinstance(fault, faults.HistoryLost)}
        for controller, kinds in owes.items():
            for kind, concerned in kinds.items():
                last = {each.key: each for each in trace.commits if each.kind == kind}
                for commit in last.values():
                    lost = commit.new is None and ((controller, kind) in unknown or ".".join(kind) in refused)
                    states = [] if lost else [each for each in (commit.old, commit.new) if each is not None]
                    for key in {key for state in states for key in concerned(state)}:
                        if commit.new is None and commit.revision < self._first_raised(controller, key):
                            # Deleted before the controller first ran.
                            continue
                        seen = any(
                            began.key == key
                            and (began.revisions[kind[1]] >= commit.revision or self._knew(began, commit.revision))
                            for began in done
                            if began.controller == controller
                        )
                        self._must("C6", seen, f"no reconcile of {'/'.join(key)} by {controller} has seen {commit}")
        self.check()

    def _first_raised(self, controller: str, key: Key) -> int:
        app, definition = self._definitions[controller]
        scope = f"{app}/{controller}", _member(definition, key)
        return min((each.revision for each in self._guard.raised if each.scope == scope), default=0)

    def _knew(self, began: Reconcile, revision: int) -> bool:
        """Return True if the process had received the reply to its own write of this revision."""
        return any(
            each.revision == revision and each.outcome == "done" and each.by.process == began.process
            for each in self.world.trace.steps[: began.steps]
        )


_JUDGES: WeakKeyDictionary[object, WorldJudge] = WeakKeyDictionary()


def judge_of(process: simulation.Process) -> WorldJudge:
    """Return the judge of a process's world. Call its `begin` before anything runs."""
    return _JUDGES.setdefault(process._injector, WorldJudge())


def _untraced(cache: Cache) -> Cache:
    """Return the cache without the tracing, so that the judge's reads are not taken for the reconciler's."""
    plain = Cache.__new__(Cache)
    plain.__dict__ = cache.__dict__
    return plain


def _member(definition: Definition, key: Key) -> str:
    """Return the member of the fence of the writes for a key."""
    placement = definition.placement
    return f"{shard_of(key, placement.shards)}/{placement.shards}" if isinstance(placement, Sharded) else ""


def _is_unknown(step: Step) -> bool:
    """Return True if the caller cannot know the outcome of a write."""
    if step.outcome.startswith(("not done: ", "done, but ", "on its way: ")):
        return True
    status = Status.__members__.get(step.outcome.partition(":")[0])
    return status is not None and isinstance(client_error(failed(status, step.outcome), write=True), OutcomeUnknown)


def _scribble(resource: headway.Resource[Any]) -> None:
    """Change a resource, as C9 allows every reader."""
    resource.metadata["scribbled"] = "by its reader"
    for name, value in vars(resource.data).items():
        if isinstance(value, list):
            value.append("scribbled")
        elif isinstance(value, int):
            setattr(resource.data, name, value + 1)
