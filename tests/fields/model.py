"""A plain model of a resource whose fields have owners: values by leaf, and leaves by manager. It knows no messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LEAVES: Mapping[str, Any] = {
    "size": 0,
    "note": "",
    "spec.replicas": 0,
    "spec.image": "",
    "hosts": (),
    "labels.a": None,
    "labels.b.c": None,
    "address": None,
    "socket": None,
    "metadata:tier": None,
}
"""The smallest fields, with the value of one that is not set."""

WHOLE = {"spec": ("spec.replicas", "spec.image"), "labels": ("labels.a", "labels.b.c")}
"""The fields that consist of others."""

ONE_OF = ("address", "socket")

PATHS = [*LEAVES, *WHOLE]


def leaves(path: str) -> Sequence[str]:
    return WHOLE.get(path, (path,))


@dataclass
class Model:
    """One resource, which exists if ``values`` is not None."""

    values: dict[str, Any] | None = None
    owners: dict[str, set[str]] = field(default_factory=dict)

    def copy(self) -> Model:
        values = None if self.values is None else dict(self.values)
        return Model(values, {manager: set(paths) for manager, paths in self.owners.items()})

    def conflicts(
        self, manager: str, given: Mapping[str, Any], paths: set[str], *, force: bool
    ) -> list[tuple[str, str]]:
        """Return the fields of other managers that an apply would change, unless it takes them over."""
        _, lost = self._applied(manager, given, paths)
        return [] if force else sorted((other, path) for other, gone in lost.items() for path in gone)

    def apply(self, manager: str, given: Mapping[str, Any], paths: set[str], *, force: bool) -> None:
        if self.values is None and not paths:
            # There is nothing to give up.
            return
        assert not self.conflicts(manager, given, paths, force=force)
        self.values, lost = self._applied(manager, given, paths)
        self.owners = {other: owned - lost[other] for other, owned in self._others(manager).items()}
        self.owners[manager] = set(paths)
        self._tidy()

    def _applied(
        self, manager: str, given: Mapping[str, Any], paths: set[str]
    ) -> tuple[dict[str, Any], dict[str, set[str]]]:
        """Return the values after an apply, and what the other managers lose."""
        before = dict(LEAVES) if self.values is None else self.values
        after = dict(before)
        for path in sorted(self.owners.get(manager, set()) - paths):
            after |= {leaf: LEAVES[leaf] for leaf in leaves(path)}
        for path in (path for owned in self._others(manager).values() for path in owned):
            for leaf in leaves(path):
                _put(after, leaf, before[leaf])
        for path in sorted(paths):
            for leaf in leaves(path):
                _put(after, leaf, given[leaf])
        return after, self._lost(self._others(manager), before, after)

    def _others(self, manager: str) -> dict[str, set[str]]:
        return {other: owned for other, owned in self.owners.items() if other != manager}

    def write(self, given: Mapping[str, Any]) -> None:
        """Make a plain write of everything."""
        if self.values is not None:
            lost = self._lost(self.owners, self.values, given)
            self.owners = {manager: owned - lost[manager] for manager, owned in self.owners.items()}
        self.values = dict(given)
        self._tidy()

    def delete(self) -> None:
        self.values, self.owners = None, {}

    def _lost(
        self, owners: Mapping[str, set[str]], before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> dict[str, set[str]]:
        return {
            manager: {path for path in owned if any(before[leaf] != after[leaf] for leaf in leaves(path))}
            for manager, owned in owners.items()
        }

    def _tidy(self) -> None:
        self.owners = {manager: owned for manager, owned in self.owners.items() if owned}


def _put(values: dict[str, Any], leaf: str, value: Any) -> None:
    if leaf in ONE_OF and value is not None:
        values |= dict.fromkeys(ONE_OF)
    values[leaf] = value
