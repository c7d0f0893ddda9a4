"""Predicates, which select the changes that trigger a controller, and the watch of a type with its mapper.

A predicate decides what is lost: a change that it rejects triggers no reconcile. The ready-made ones therefore reject
only updates. Creations (including everything that exists when a run begins), deletions, and the beginning of a deletion
always pass them and all combinations of them. Your own function is called for every change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

from headway.base import answer_problem, checked, plain_problem
from headway.cache import CachedType, Isolation
from headway.errors import DeclarationError
from headway.mapper._mappers import Mapper, Need, R, R_contra, mapper_name, mapper_problem, needs_of, reading
from headway.resource import ScopedType, is_marked, pb

Passes = Callable[[CachedType[Any], "pb.Resource | None", "pb.Resource | None", bool, "Isolation | None"], bool]
"""The function of a predicate: (type, old, new, True if this run made the write, the check of users' functions)."""


class Predicate(Generic[R_contra]):
    """A predicate, which lets a change pass or rejects it. Created by the functions of this module.

    Attributes:
        name: the predicate's name in reports.
        updates_only: True if creations, deletions and the beginnings of deletions pass without calling the function.
    """

    __slots__ = ("_passes", "name", "updates_only")

    def __init__(self, name: str, passes: Passes, *, updates_only: bool) -> None:
        self.name = name
        self.updates_only = updates_only
        self._passes = passes

    def passes(
        self,
        type: CachedType[Any],
        old: pb.Resource | None,
        new: pb.Resource | None,
        own: bool = False,
        isolation: Isolation | None = None,
    ) -> bool:
        """Return True if the change passes. Raises whatever a user's function raises."""
        if self.updates_only and (
            old is None or new is None or (is_marked(new.metadata) and not is_marked(old.metadata))
        ):
            return True
        return self._passes(type, old, new, own, isolation)

    def __repr__(self) -> str:
        return self.name


When = Callable[["R | None", "R | None"], bool] | Predicate[R]
"""A predicate: a ready-made one, or a function of the old and the new state that returns True or False."""


def _update(name: str, differs: Callable[[pb.Resource, pb.Resource], bool]) -> Predicate[Any]:
    def passes(
        _: CachedType[Any], old: pb.Resource | None, new: pb.Resource | None, __: bool, ___: Isolation | None
    ) -> bool:
        assert old is not None
        assert new is not None
        return differs(old, new)

    return Predicate(name, passes, updates_only=True)


@checked()
def content_changed() -> Predicate[Any]:
    """Pass updates by a Write, which changes the generation, but not updates of only a status."""
    return _update("content_changed()", lambda old, new: old.generation != new.generation)


@checked()
def data_changed() -> Predicate[Any]:
    """Pass updates that change the payload, or may do so because the function of a projection raised."""
    # A change of a status keeps the object, and comparing two equal ones takes longer.
    return _update(
        "data_changed()", lambda old, new: old.data is None or (old.data is not new.data and old.data != new.data)
    )


@checked(keys="'color'")
def metadata_changed(*keys: str) -> Predicate[Any]:
    """Pass updates that change the metadata or, if keys are given, any of these entries."""
    if not keys:
        return _update("metadata_changed()", lambda old, new: old.metadata != new.metadata)
    return _update(
        f"metadata_changed({', '.join(map(repr, keys))})",
        lambda old, new: any(old.metadata.get(key) != new.metadata.get(key) for key in keys),
    )


@checked(keys="'staff/teams'")
def status_changed(*keys: str) -> Predicate[Any]:
    """Pass updates that change a status or, if keys are given, any status under these names."""
    if not keys:
        return _update("status_changed()", lambda old, new: old.status != new.status)
    return _update(
        f"status_changed({', '.join(map(repr, keys))})",
        lambda old, new: any(old.status.get(key) != new.status.get(key) for key in keys),
    )


@checked()
def deletion_begun() -> Predicate[Any]:
    """Pass no update except the beginning of a deletion. Creations and deletions pass as well."""
    return _update("deletion_begun()", lambda _, __: False)


@checked()
def not_own_writes() -> Predicate[Any]:
    """Pass updates by other writers, but not those by this run of the controller.

    A write with an unknown outcome passes, and so does a write of an earlier run.
    """
    return Predicate("not_own_writes()", lambda _, __, ___, own, ____: not own, updates_only=True)


@checked()
def all_of(*predicates: When[R]) -> Predicate[R]:
    """Pass changes that pass all of these predicates."""
    made = _made("all_of", predicates)
    return _combined("all_of", made, _until(False, made))


@checked()
def any_of(*predicates: When[R]) -> Predicate[R]:
    """Pass changes that pass at least one of these predicates."""
    made = _made("any_of", predicates)
    return _combined("any_of", made, _until(True, made))


@checked()
def none_of(*predicates: When[R]) -> Predicate[R]:
    """Pass changes that pass none of these. If all are ready-made, creations and deletions still pass."""
    made = _made("none_of", predicates)
    any_passes = _until(True, made)
    return _combined("none_of", made, lambda *change: not any_passes(*change))


def _until(wanted: bool, made: tuple[Predicate[Any], ...]) -> Passes:
    """Return a function that returns ``wanted`` as soon as one of these predicates does, and otherwise the opposite."""

    def passes(*change: Any) -> bool:
        # A generator expression for each change would take longer than most predicates.
        for each in made:
            if each.passes(*change) is wanted:
                return wanted
        return not wanted

    return passes


def _combined(name: str, made: tuple[Predicate[Any], ...], passes: Passes) -> Predicate[Any]:
    return Predicate(
        f"{name}({', '.join(each.name for each in made)})", passes, updates_only=all(each.updates_only for each in made)
    )


def _made(where: str, given: tuple[object, ...]) -> tuple[Predicate[Any], ...]:
    if not given:
        raise DeclarationError(f"{where} takes predicates, such as headway.predicates.content_changed(), and got none")
    return tuple(predicate(where, each) for each in given)


def predicate(where: str, given: object) -> Predicate[Any]:
    """Return a predicate or a function as a `Predicate`. Raises DeclarationError for anything else."""
    if isinstance(given, Predicate):
        return given
    problem = plain_problem(
        given,
        2,
        "old and new",
        what="a predicate, such as headway.predicates.content_changed(),",
        why="a predicate must not wait",
    )
    if problem or not callable(given):
        raise DeclarationError(f"{where} {problem}")
    function: Callable[[Any, Any], object] = given

    name = mapper_name(function)

    def passes(
        type: CachedType[Any],
        old: pb.Resource | None,
        new: pb.Resource | None,
        _: bool,
        isolation: Isolation | None,
    ) -> bool:
        given = (None if old is None else type.view(old), None if new is None else type.view(new))
        answer = reading(isolation, f"predicate {name}", given, lambda: function(*given))
        if not isinstance(answer, bool):
            # A function without `return` would reject every change without anyone noticing.
            if problem := answer_problem(answer):
                raise DeclarationError(problem)
            raise DeclarationError(f"it returned {answer!r}: a predicate must return True or False")
        return answer

    return Predicate(name, passes, updates_only=False)


@dataclass(frozen=True, slots=True)
class Watch(Generic[R]):
    """A type that a controller watches. Created by `watch`."""

    type: CachedType[R]
    mapper: Mapper[R]
    when: Predicate[R] | None = None

    @property
    def needs(self) -> frozenset[Need]:
        """The indexes that the mapper reads, as far as it declares them."""
        return needs_of(self.mapper)

    def __str__(self) -> str:
        given: object = self.type
        return f"{given if isinstance(given, ScopedType) else self.type.name} by {watch_name(self)}"


def watch_name(watch: Watch[Any]) -> str:
    """Return the names of a watch's mapper and predicate in reports."""
    return mapper_name(watch.mapper) + ("" if watch.when is None else f" when {watch.when.name}")


@checked()
def watch(type: CachedType[R], mapper: Mapper[R], *, when: When[R] | None = None) -> Watch[R]:
    """``watches=[headway.watch(ROUTE, service_of, when=headway.predicates.content_changed())]``

    Args:
        type: the watched type, or a scope or projection of it.
        mapper: maps its changes to managed resources.
        when: selects the changes that are mapped. Default: all.

    Raises DeclarationError.
    """
    problem = mapper_problem(mapper)
    if problem:
        raise DeclarationError(f"watches[{type.name}] {problem}")
    return Watch(type, mapper, None if when is None else predicate(f"watches[{type.name}]: when", when))
