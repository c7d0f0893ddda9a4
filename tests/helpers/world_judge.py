"""What happens in a simulated world, held to the contract's clauses as it happens, against the world's true store.

A `WorldJudge` stands around every reconcile and every mapper's call of a program, its `StoreGuard` before the store's
commits. What is found is kept in ``broken``, each sentence with its clause: a reconciler's error is the engine's to
retry.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from grpclib import GRPCError
from grpclib.const import Status

import headway
from headway import events
from headway.cache import Cache, CachedType, CacheReader
from headway.client import client_error
from headway.controller import Definition, Sharded
from headway.errors import OutcomeUnknown
from headway.resource import Key, Kind, pb
from headway.run import shard_of
from headway.testing import simulation
from headway.testing.simulation import _faults as faults
from headway.testing.simulation._link import RECONCILE
from headway.testing.simulation._trace import Committed, Reconcile, Reconciled, Step, named
from tests.helpers.world_guard import Scope, StoreGuard, content_of


class _InHand(NamedTuple):
    process: str
    life: int
    scope: Scope
    key: Key
    term: int
    reconcile: Reconcile


class WorldJudge:
    """The judge of one world.

    Attributes:
        broken: what is wrong, each with the clause that it breaks.
        looked: how often each clause was looked at.
    """

    def __init__(self, world: simulation.World) -> None:
        self.world = world
        self.broken: list[str] = []
        self.looked: Counter[str] = Counter()
        self._frontiers: dict[tuple[str, Scope, int], dict[Kind, int]] = {}
        self._in_hand: list[_InHand] = []
        self._definitions: dict[str, tuple[str, Definition]] = {}
        # What users were told to be stored: by kind and key the revision.
        self.acknowledged: dict[tuple[Kind, Key], int] = {}
        self._guard = StoreGuard(world, self._must)

    def _must(self, clause: str, so: object, otherwise: str) -> None:
        self.looked[clause] += 1
        if not so:
            self.broken.append(f"{clause}: {otherwise}")

    # --- around a program ---

    def over(self, app: headway.App, process: simulation.Process) -> headway.App:
        """The same program, with this judge around its reconcilers."""
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
        """In a mapper's call: what it sees of each of the types."""
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
        hand = _InHand(process.name, process.life, scope, request.id.key, rt.term, reconcile)
        # What is wrong already makes more of it wrong, without end.
        if process.life and not self.broken:
            self._one_at_a_time(hand, definition)
            for type in definition.types:
                self._is_primed(hand, cache, type)
                self._sees_the_truth(cache, type)
                self._shows(hand, cache, type, self._steps_of(hand))
            self._sees_what_triggered_it(definition, cache, request)
            self._has_no_write_in_the_open(hand, definition, cache)
        self._in_hand.append(hand)
        try:
            yield
            own = [each for each in self.world.trace.steps[reconcile.steps :] if each.by is reconcile]
            for type in definition.types:
                self._shows(hand, cache, type, own)
        finally:
            self._in_hand.remove(hand)
            for type in () if self.broken else definition.types:
                for each in cache.list(type):
                    _scribble(each)

    # --- the clauses ---

    def _is_primed(self, hand: _InHand, cache: CacheReader, type: CachedType[Any]) -> None:
        """C1 and C3: from the commit by which its run began, and never back from where it was."""
        frontier, start = cache.revision(type), self._guard.starts.get((hand.scope, hand.term))
        what = f"{hand.reconcile} in term {hand.term}: {type} is at {frontier}"
        self._must("C3", start is not None, f"{what}, and its run has raised no fence")
        for clause in ("C1", "C3"):
            self._must(clause, frontier >= (start or 0), f"{what}, and its run began at {start}")
        seen = self._frontiers.setdefault((hand.process, hand.scope, hand.term), {})
        before = seen.get(type.kind, 0)
        self._must("C2", frontier >= before, f"{what}, and was at {before}")
        seen[type.kind] = max(before, frontier)

    def _sees_the_truth(self, cache: CacheReader, type: CachedType[Any]) -> None:
        """C1, C2 and C9: what was there at its frontier, or was written since by controllers, as it was stored."""
        frontier, kind = cache.revision(type), type.kind
        held = {each.id.key: each for each in cache.list(type)}
        there = {key: int(each.version) for (of, key), each in self.world.store.at(frontier).items() if of == kind}
        for key in {*held, *there}:
            version = int(held[key].version) if key in held else 0
            if version != there.get(key, 0):
                # The answer to a write that has nothing to do tells what somebody else has stored.
                answered = any(
                    each.write and (each.kind, each.key, each.outcome, each.revision) == (kind, key, "done", 0)
                    for each in self.world.trace.steps
                )
                later = [each for each in self._commits(kind, key) if each.revision > frontier]
                known = [0 if each.new is None else each.revision for each in later if each.by or answered]
                what = f"a cache at {frontier} has {named(kind, key)} at {version}, where it was at {there.get(key, 0)}"
                self._must("C2", version in known, f"{what}; controllers have since made it, or been told of, {known}")
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

    def _steps_of(self, hand: _InHand) -> list[Step]:
        by = hand.reconcile
        return [
            each
            for each in self.world.trace.steps
            if (each.by.process, each.by.controller, each.by.term) == (by.process, by.controller, hand.term)
        ]

    def _shows(self, hand: _InHand, cache: CacheReader, type: CachedType[Any], steps: list[Step]) -> None:
        """C5: what was acknowledged to its run, or what came after."""
        for step in steps:
            if step.outcome != "done" or not step.revision or step.kind != type.kind:
                continue
            commits = self._commits(step.kind, step.key)
            found = next((each for each in cache.list(type) if each.id.key == step.key), None)
            seen = int(found.version) if found is not None else 0
            later = any(each.new is None and each.revision >= step.revision for each in commits)
            so = seen >= step.revision or (not seen and later)
            self._must(
                "C5", so, f"{hand.reconcile}: {step} was acknowledged, and {named(step.kind, step.key)} is {seen}"
            )

    def _has_no_write_in_the_open(self, hand: _InHand, definition: Definition, cache: CacheReader) -> None:
        """C5: no key is reconciled before each write of unknown outcome is settled by a commit that the cache shows."""
        low = min(cache.revision(type) for type in definition.types)
        for step in self._steps_of(hand):
            same = _member(definition, step.by.key) == hand.scope[1]
            if step.write and step.kind[1] and same and _is_unknown(step):
                settled = [
                    each for each in self._guard.raised if each.scope == hand.scope and each.steps >= step.number
                ]
                what = f"{hand.reconcile} begins after {step}"
                self._must("C5", settled, f"{what}, which nothing has settled")
                if settled:
                    at = settled[0].revision
                    self._must("C5", low >= at, f"{what}, which was settled at {at}, and its cache is at {low}")

    def _one_at_a_time(self, hand: _InHand, definition: Definition) -> None:
        mine = [each for each in self._in_hand if (each.process, each.life) == (hand.process, hand.life)]
        mine = [each for each in mine if each.scope[0] == hand.scope[0]]
        self._must("C7", all(each.key != hand.key for each in mine), f"{hand.reconcile}, while it still does")
        most = definition.concurrency
        self._must("C7", len(mine) < most, f"{hand.reconcile}, beside {len(mine)} others")
        terms = {each.term for each in mine if each.scope == hand.scope} | {hand.term}
        self._must("C7", len(terms) == 1, f"{hand.reconcile}: runs of terms {terms} overlap")
        if any(isinstance(each, faults.LeaseLost) for each in self.world.struck):
            # Ended behind its holder's back: that finds out when it next asks.
            return
        alive = {process.name: process.life for process in self.world.processes}
        others = [
            each
            for each in self._in_hand
            if each.scope == hand.scope and each.process != hand.process and alive[each.process] == each.life
        ]
        # One that waits for the answer to a call has stalled: it may still run code, and nothing of it lands.
        stalled = {each.by.process for each in self.world.trace.steps if each.outcome == "under way"}
        running = [str(each.reconcile) for each in others if each.process not in stalled]
        self._must("C7", not running, f"{hand.reconcile}, while {running}")

    # --- from outside ---

    def check(self) -> None:
        """Raise AssertionError with what is broken so far; and C11: nothing that was acknowledged is lost."""
        commits = {(each.kind, each.key, each.revision) for each in self.world.trace.commits}
        last: dict[tuple[Kind, Key], Committed] = {(each.kind, each.key): each for each in self.world.trace.commits}
        now = self.world.store.now
        for place, each in last.items():
            stored = int(now[place].version) if place in now else 0
            wanted = 0 if each.new is None else each.revision
            self._must(
                "C11", stored == wanted, f"{named(*place)} is at {stored}, where the last commit made it {wanted}"
            )
        told = [(each.kind, each.key, each.revision) for each in self.world.trace.steps if each.outcome == "done"]
        told += [(*place, revision) for place, revision in self.acknowledged.items()]
        for kind, key, revision in told:
            if revision and kind[1]:
                what = f"{named(kind, key)} was acknowledged at {revision}, and no commit made it so"
                self._must("C11", (kind, key, revision) in commits, what)
        assert not self.broken, "\n".join(dict.fromkeys(self.broken))

    def every_last_change_was_seen(self, owes: Mapping[str, Mapping[Kind, Callable[[pb.Resource], list[Key]]]]) -> None:
        """C6, when all is settled: of each key, a reconcile began with its last changes in its cache, and ended well.

        ``owes``: by controller and by kind the keys that a change of it concerns, by its old state and by its new one.
        """
        trace = self.world.trace
        done = [each.began for each in trace.entries if isinstance(each, Reconciled) and each.result == "done"]
        # A run that could not know what was deleted before it has said so.
        unknown = {
            (event.controller, event.type.unversioned)
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
                            # Of what was deleted before it was there for the first time it owes nothing.
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
        """Whether its process had been told of that write of its own."""
        return any(
            each.revision == revision and each.outcome == "done" and each.by.process == began.process
            for each in self.world.trace.steps[: began.steps]
        )


_JUDGES: WeakKeyDictionary[simulation.World, WorldJudge] = WeakKeyDictionary()


def judge_of(process: simulation.Process) -> WorldJudge:
    """The judge of a process' world."""
    world = process._world
    if world not in _JUDGES:
        _JUDGES[world] = WorldJudge(world)
    return _JUDGES[world]


def _untraced(cache: Cache) -> Cache:
    """The same cache, where a look at it is no read of the reconciler's."""
    plain = Cache.__new__(Cache)
    plain.__dict__ = cache.__dict__
    return plain


def _member(definition: Definition, key: Key) -> str:
    """Whose fence the writes for a key bear."""
    placement = definition.placement
    return str(shard_of(key, placement.shards)) if isinstance(placement, Sharded) else ""


def _is_unknown(step: Step) -> bool:
    """Whether its caller can't know what has become of a write."""
    if step.outcome.startswith(("not done: ", "done, but ", "on its way: ")):
        return True
    status = Status.__members__.get(step.outcome.partition(":")[0])
    return status is not None and isinstance(client_error(GRPCError(status, step.outcome), write=True), OutcomeUnknown)


def _scribble(resource: headway.Resource[Any]) -> None:
    """C9: it may be changed freely."""
    resource.metadata["scribbled"] = "by who was handed it"
    for name, value in vars(resource.data).items():
        if isinstance(value, list):
            value.append("scribbled")
        elif isinstance(value, int):
            setattr(resource.data, name, value + 1)
