"""The changes that a run maps when it begins: what the previous run left, the cached resources, and deletions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headway.cache import Applied, Subscription
from headway.controller import Definition
from headway.mapper import Backlog
from headway.resource import Key, TypeName
from headway.run._mapping import RunMapping


class Owed(NamedTuple):
    """The work that a run leaves to the next one when it ends (C6).

    Attributes:
        keys: the keys that are still to be reconciled.
        changes: the changes that are still to be mapped. If a change moved a resource from one key to another, it is
            the only record of the old key.
        subscriptions: subscriptions left open, so that no change is missed between two runs. The next run closes them.
    """

    keys: Sequence[Key] = ()
    changes: Sequence[tuple[TypeName, Applied]] = ()
    subscriptions: Sequence[tuple[TypeName, Subscription]] = ()


def add_owed(
    mapping: RunMapping, owed: Owed, subscriptions: Mapping[TypeName, Subscription], first_commit: int
) -> None:
    """Map the previous run's changes. Every type has reached those that it had taken.

    A change of a history that the store has lost, or of a store that was replaced, waits for no revision. The run's
    first commit is above everything that the store had before it, so an earlier run can have taken no other change
    from there on. Only a subscription that is still open can.
    """
    lost: dict[TypeName, list[Applied]] = {}
    mapping.changes.push_owed(each for each in owed.changes if each[1].revision < first_commit)
    for type, change in owed.changes:
        if change.revision >= first_commit:
            lost.setdefault(type, []).append(change)
    for type, former in owed.subscriptions:
        if former.store is subscriptions[type].store:
            mapping.changes.push(type, former.drain())
        else:
            lost.setdefault(type, []).extend(former.drain())
        former.close()
    for type, found in lost.items():
        # The run may commit the same revisions again, and these changes are not its own writes.
        mapping.changes.push_backlog(type, [change._replace(revision=0) for change in found])


def add_start(
    mapping: RunMapping,
    definition: Definition,
    subscriptions: Mapping[TypeName, Subscription],
    deletions: Mapping[TypeName, Sequence[Applied]],
) -> None:
    """Map what a start has to map: the cached resources of the watched types, and these deletions."""
    watched = {type.name for type in definition.watches}
    for name, subscription in subscriptions.items():
        if name in watched:
            _add_cached(mapping, name, subscription)
        _add(mapping, name, deletions.get(name, ()))


def _add_cached(mapping: RunMapping, type: TypeName, subscription: Subscription) -> None:
    store, complete = subscription.store, mapping.complete
    if store.newest <= complete:
        mapping.changes.push_backlog(type, Backlog(store.entries))
        return
    # Some resources arrived after the subscription or were ahead before it.
    changes: list[Applied] = []
    for each in Backlog(store.entries):
        version = int(each.new.version) if each.new is not None else 0
        changes.append(each._replace(revision=version) if version > complete else each)
    _add(mapping, type, changes)


def _add(mapping: RunMapping, type: TypeName, changes: Sequence[Applied]) -> None:
    """Map changes after the live ones, but none before all types have reached it (C4)."""
    complete = mapping.complete
    mapping.changes.push(type, [each for each in changes if each.revision > complete])
    mapping.changes.push_backlog(type, [each for each in changes if each.revision <= complete])
