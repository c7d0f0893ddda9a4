"""Checks of what must hold at all times. They run against the store as it was after each commit. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headway.base import error_text, repr_text, where_of
from headway.errors import DeclarationError
from headway.resource import Key, Kind, Registry, Resource, ResourceType, did_you_mean, pb, type_name
from headway.testing.simulation._trace import Committed, Entry, OutsideChanged, Trace
from headway.testing.simulation.oracles._oracles import Finding
from headway.versions import Versions, chain_of


class Stored:
    """The contents of the store at one revision.

    Attributes:
        revision: the store's revision.
        outside: a copy of the world outside at that time, or None without one.
    """

    def __init__(
        self,
        revision: int,
        now: Mapping[tuple[Kind, Key], pb.Resource],
        types: Iterable[ResourceType[Any]],
        outside: Any = None,
        changes: Sequence[Committed] = (),
    ) -> None:
        self.revision = revision
        self.outside = outside
        self._now = now
        self._types = types
        self._changes = changes

    def list(self, kind: str) -> list[Resource[Any]]:
        """Return all resources of a kind, such as ``Team``, sorted by name.

        Raises:
            DeclarationError: if the program has no type of this kind.
        """
        type = type_of(self._types, kind)
        found = [each for (of, _), each in sorted(self._now.items(), key=lambda entry: entry[0]) if of == type.kind]
        return [viewed(type.kind, each, self._types) for each in found]

    def changed(self, kind: str) -> Sequence[tuple[Resource[Any], Resource[Any]]]:
        """Return the resources of a kind that the last commit has changed, each as it was before and as it is now.

        Resources that it has created or deleted are left out. After a call of the world outside, there are none.

        Raises:
            DeclarationError: if the program has no type of this kind.
        """
        type = type_of(self._types, kind)
        pairs = [
            (viewed(type.kind, each.old, self._types), viewed(type.kind, each.new, self._types))
            for each in self._changes
            if each.kind == type.kind and each.old is not None and each.new is not None
        ]
        return [(before, now) for before, now in pairs if before.id == now.id]


def shown_as(type: ResourceType[Any], stored: pb.Resource, types: Iterable[ResourceType[Any]]) -> pb.Resource:
    """Return a stored resource in the version of this type.

    Without converters for its kind, the resource is returned as it is stored.
    """
    if not isinstance(types, Registry) or chain_of(types, type.kind) is None:
        return stored
    seen = Versions(types).of(type).view(stored)
    return stored if seen is None else seen


def viewed(kind: Kind, stored: pb.Resource, types: Iterable[ResourceType[Any]]) -> Resource[Any]:
    """Return a stored resource in the newest version of its kind, or in its own if no converters are declared."""
    name = type_name(stored.id.type if stored.id is not None else None)
    same_kind = [each for each in types if each.kind == kind]
    if isinstance(types, Registry) and chain_of(types, kind) is not None:
        return same_kind[-1].view(shown_as(same_kind[-1], stored, types))
    return next((each for each in same_kind if each.name == name), same_kind[-1]).view(stored)


def type_of(types: Iterable[ResourceType[Any]], kind: str, version: str = "") -> ResourceType[Any]:
    """Return the type of this kind, in the version that was declared last unless a version is given.

    Raises:
        DeclarationError: if there is no such type.
    """
    declared = list(types)
    if version:
        for each in declared:
            if (each.name.kind, each.name.version) == (kind, version):
                return each
        there = [each.name.version for each in declared if each.name.kind == kind]
        if there:
            raise DeclarationError(f"the program has no version {version!r} of {kind}: it has {', '.join(there)}")
    known = {type.name.kind: type for type in declared}
    if kind not in known:
        raise DeclarationError(
            f"the program has no type {kind!r}{did_you_mean(kind, known)}: it has {', '.join(known)}"
        )
    return known[kind]


Always = Callable[[Stored], None]
"""A check that raises AssertionError if something is wrong that must be right at all times."""


def name_of(always: Always) -> str:
    """Return the name under which the failures of a check are reported."""
    return getattr(always, "__name__", "always")


def check_answer(answer: object) -> None:
    """Raise AssertionError if a check has returned something, such as False, instead of raising."""
    if answer is not None and answer is not True:
        raise AssertionError(
            f"it returned {repr_text(answer)}: a check raises AssertionError for what is wrong, and returns nothing"
        )


def always_held(trace: Trace, types: Iterable[ResourceType[Any]], always: Sequence[Always]) -> list[Finding]:
    """Return a finding for each check that fails, about its first failure.

    The checks run after each commit, and after each call of the world outside.
    """
    left = list(always)
    now: dict[tuple[Kind, Key], pb.Resource] = {}
    findings: list[Finding] = []
    outside: Any = None
    revision = 0
    for (at, _), entries in itertools.groupby(trace.entries, key=_moment):
        if not at:
            continue
        where, moment = "", tuple(entries)
        for each in moment:
            if isinstance(each, OutsideChanged):
                outside, where = each.state, f", after the call {each.call}"
            elif isinstance(each, Committed):
                revision = each.revision
                if each.new is None:
                    now.pop((each.kind, each.key), None)
                else:
                    now[each.kind, each.key] = each.new
        commits = [each for each in moment if isinstance(each, Committed)]
        for asked in list(left):
            try:
                check_answer(asked(Stored(revision, now, types, outside, commits)))
            except AssertionError as error:
                left.remove(asked)
                said = error_text(error) or f"it did not hold, at {where_of(error)}"
                text = f"when the store was at {revision}{where}: {said}"
                findings.append(Finding(name_of(asked), text, entries=moment))
    return findings


def _moment(entry: Entry) -> tuple[str, int]:
    """Return a value that the changes of one commit share, and that is empty for what changes nothing."""
    if isinstance(entry, Committed):
        return "store", entry.revision
    return ("outside", id(entry)) if isinstance(entry, OutsideChanged) else ("", 0)
