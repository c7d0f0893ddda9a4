"""From one change of a type to keys in the queue, by the predicates and mappers of a controller."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import trio

from headway.cache import Applied, CachedType, CacheReader, Subscription
from headway.controller import Definition
from headway.errors import DeclarationError, PayloadError
from headway.journal import ControllerJournal
from headway.mapper import Predicate, Watch, ask, failed_name, ids_of
from headway.queue import BACKLOG, LIVE, Priority
from headway.reconcile import KeyAtWork, Reason
from headway.resource import Key, TypeName
from headway.run._self_triggers import Fight, SelfTriggers


class SupportsAdd(Protocol):
    """The part of a work queue that accepts keys."""

    def add(self, key: Key, reason: Reason, *, priority: Priority = LIVE, due: float = -math.inf) -> None:
        """Enqueue a key immediately, or at ``due`` unless it is ready or due earlier."""
        ...


class ChangeMapper:
    """Maps changes of a controller's types, each by its old and its new state (C6).

    Attributes:
        at_work: the key whose change is being mapped.
    """

    def __init__(
        self,
        definition: Definition,
        cache: CacheReader,
        subscriptions: Mapping[TypeName, Subscription],
        self_triggers: SelfTriggers,
        journal: ControllerJournal | None,
        queue: SupportsAdd,
    ) -> None:
        self._definition = definition
        self._cache = cache
        self._subscriptions = subscriptions
        self._self_triggers = self_triggers
        self._journal = journal
        self._queue = queue
        self._manages = definition.manages.name
        self._watches = {type.name: watch for type, watch in definition.watches.items()}
        # The function to name if it raises.
        self._calling: object = None
        self.at_work = KeyAtWork()

    @property
    def calling(self) -> str:
        """The name of the predicate or mapper that was called last."""
        return failed_name(self._calling)

    def map_change(self, type: TypeName, applied: Applied, *, backlog: bool) -> None:
        """Map a change and enqueue the affected keys. Raises whatever a user's function raises."""
        try:
            self._map_states(type, applied, backlog=backlog)
        except PayloadError:
            # Any other exception is unrelated to the payload. It may not occur again, so the change is kept for a
            # retry.
            legible = self._legible(type, applied)
            if legible is applied:
                raise
            self._map_legible(type, applied, legible)

    def _map_states(self, type: TypeName, applied: Applied, *, backlog: bool) -> None:
        definition = self._definition
        self.at_work.key = applied.key
        priority: Priority = BACKLOG if backlog else LIVE
        # A call of the class would run a function of Python for every change.
        reason = tuple.__new__(Reason, ("started" if backlog else "changed", type, applied.key, applied.revision))
        fights = self._self_triggers.fights if self._self_triggers.writes and not backlog else None
        fight = None if fights is None else fights.compare(type, applied, trio.current_time())
        self._calling = definition.when
        if type == self._manages and (
            definition.when is None or self._passes(type, applied, definition.manages, definition.when)
        ):
            self._add_mapped(applied.key, applied, reason, priority, fight)
        elif type == self._manages and definition.when is not None:
            self._turned_away(definition.when, type, applied, backlog=backlog)
        watch = self._watches.get(type)
        if watch is None:
            return
        self._calling = watch.when
        if watch.when is not None and not self._passes(type, applied, watch.type, watch.when):
            self._turned_away(watch.when, type, applied, backlog=backlog)
            return
        self._map_by(watch, applied, reason, priority, fight)

    def _turned_away(self, when: Predicate[Any], type: TypeName, applied: Applied, *, backlog: bool) -> None:
        """Record that a predicate has turned a change away. Resources of the backlog are not changes."""
        if self._journal is not None and not backlog:
            self._journal.turn_away(type, applied.key, applied.revision, when.name)

    def _map_by(
        self, watch: Watch[Any], applied: Applied, reason: Reason, priority: Priority, fight: Fight | None = None
    ) -> None:
        self._calling = watch.mapper
        keys, problems = self._keys(applied, watch)
        for key in keys:
            self._add_mapped(key, applied, reason, priority, fight)
        if problems:
            # The valid ids are enqueued. The change is kept, because a mapper that returned an invalid id may have more
            # (C6).
            raise DeclarationError("; ".join(problems))

    def _legible(self, type: TypeName, applied: Applied) -> Applied:
        """Return the change without the states whose payloads do not decode, since reading those always raises."""
        is_undecodable = self._subscriptions[type].is_undecodable
        key, old, new, _ = applied
        if old is not None and is_undecodable(key, old):
            applied = applied._replace(old=None)
        if new is not None and is_undecodable(key, new):
            applied = applied._replace(new=None)
        return applied

    def _map_legible(self, type: TypeName, applied: Applied, legible: Applied) -> None:
        """Map a change, or its readable states if the mapper reads payloads.

        No predicate is called, because it would take a partial change for a creation or a deletion.
        """
        reason = Reason("changed", type, applied.key, applied.revision)
        if type == self._manages:
            self.add(applied.key, reason)
        watch = self._watches.get(type)
        if watch is None:
            return
        try:
            # The error may have come from a predicate that reads the payload.
            self._map_by(watch, applied, reason, LIVE)
        except PayloadError:
            if legible.old is not None or legible.new is not None:
                self._map_by(watch, legible, reason, LIVE)

    def _add_mapped(self, key: Key, applied: Applied, reason: Reason, priority: Priority, fight: Fight | None) -> None:
        """Enqueue a key that a change maps to, unless it is a status that the key's own reconcile wrote there."""
        triggers = self._self_triggers
        own = bool(triggers.writes) and key == applied.key and reason.type == self._manages
        if not (own and triggers.own.needs_no_run(applied, reason)):
            self.add(key, reason, priority, fight)

    def add(self, key: Key, reason: Reason, priority: Priority = LIVE, fight: Fight | None = None) -> None:
        """Enqueue a key. Delay one that triggers itself by its status or fights, and not for any other reason."""
        triggers = self._self_triggers
        due = triggers.queued(key, reason, trio.current_time(), fight) if triggers.writes else -math.inf
        self._queue.add(key, reason, priority=priority, due=due)

    def _passes(self, name: TypeName, applied: Applied, type: CachedType[Any], when: Predicate[Any]) -> bool:
        return when.passes(
            type, applied.old, applied.new, self._self_triggers.own.is_own(name, applied), self._cache.isolation
        )

    def _keys(self, applied: Applied, watch: Watch[Any]) -> tuple[list[Key], list[str]]:
        """Return the keys that a change maps to, and a problem for each invalid value that the mapper returned."""
        old, new = applied.old, applied.new
        view, mapper = watch.type.view, watch.mapper
        states = (None if old is None else view(old), None if new is None else view(new))
        keys: list[Key] = []
        problems: list[str] = []
        for answer in ask(mapper, *states, self._cache):
            found, wrong = ids_of(answer, self._definition.manages)
            keys += found
            problems += wrong
        return list(dict.fromkeys(keys)) if len(keys) > 1 else keys, problems

    def add_every(self, reason: Reason) -> None:
        """Enqueue every key in the cache at low priority, because a lost state mapped to one of them."""
        for key in self._subscriptions[self._manages].store.entries:
            self.add(key, reason, BACKLOG)
