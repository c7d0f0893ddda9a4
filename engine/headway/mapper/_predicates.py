"""Predicates: which changes a controller wants to hear of.

A predicate decides what is lost: a change that it turns away makes nobody look. So the ready-made ones turn away
updates alone. Creations (and with them all that is there when a run begins), deletions, and the beginning of a
deletion always pass them, and pass what is made of them. A function of yours is asked for everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

from headway._functions import answer_problem, plain_problem
from headway._keywords import check_keywords
from headway.cache import CachedType, Isolation
from headway.errors import DeclarationError
from headway.mapper._mappers import R, R_contra, mapper_name, reading
from headway.resource import is_marked, pb

Passes = Callable[[CachedType[Any], "pb.Resource | None", "pb.Resource | None", bool, "Isolation | None"], bool]
"""(type, old, new, whether this run itself wrote it, what checks a function of the user's)."""


class Predicate(Generic[R_contra]):
    """Lets a change through, or not. Made by the functions of this module.

    Attributes:
        name: what it is called in reports.
        updates_only: creations, deletions and the beginnings of deletions pass without being asked about.
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
        """Whether the change is let through. Raises what a function of the user's raises."""
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


@check_keywords
def content_changed() -> Predicate[Any]:
    """A Write changed the resource, not only a status: its generation is another one."""
    return _update("content_changed()", lambda old, new: old.generation != new.generation)


@check_keywords
def data_changed() -> Predicate[Any]:
    """The payload is another one; or may be, where the function of a projection has raised."""
    return _update("data_changed()", lambda old, new: old.data is None or old.data != new.data)


@check_keywords
def metadata_changed(*keys: str) -> Predicate[Any]:
    """The metadata differ; with keys: any of these entries does."""
    if not keys:
        return _update("metadata_changed()", lambda old, new: old.metadata != new.metadata)
    _check_texts("metadata_changed", keys)
    return _update(
        f"metadata_changed({', '.join(map(repr, keys))})",
        lambda old, new: any(old.metadata.get(key) != new.metadata.get(key) for key in keys),
    )


@check_keywords
def status_changed(*keys: str) -> Predicate[Any]:
    """A status differs; with keys: one of those that are kept under these names does."""
    if not keys:
        return _update("status_changed()", lambda old, new: old.status != new.status)
    _check_texts("status_changed", keys)
    return _update(
        f"status_changed({', '.join(map(repr, keys))})",
        lambda old, new: any(old.status.get(key) != new.status.get(key) for key in keys),
    )


@check_keywords
def deletion_begun() -> Predicate[Any]:
    """No update but the beginning of the deletion; creations and deletions pass as well."""
    return _update("deletion_begun()", lambda _, __: False)


@check_keywords
def not_own_writes() -> Predicate[Any]:
    """What others wrote, and not what this run of the controller did.

    A write whose outcome is unknown passes, and so does what a former run wrote.
    """
    return Predicate("not_own_writes()", lambda _, __, ___, own, ____: not own, updates_only=True)


@check_keywords
def all_of(*predicates: When[R]) -> Predicate[R]:
    """What passes every one of these."""
    made = _made("all_of", predicates)
    return _combined("all_of", made, lambda *change: all(each.passes(*change) for each in made))


@check_keywords
def any_of(*predicates: When[R]) -> Predicate[R]:
    """What passes at least one of these."""
    made = _made("any_of", predicates)
    return _combined("any_of", made, lambda *change: any(each.passes(*change) for each in made))


@check_keywords
def none_of(*predicates: When[R]) -> Predicate[R]:
    """What passes none of these. What always passes the ready-made ones passes this too, if all of them are such."""
    made = _made("none_of", predicates)
    return _combined("none_of", made, lambda *change: not any(each.passes(*change) for each in made))


def _combined(name: str, made: list[Predicate[Any]], passes: Passes) -> Predicate[Any]:
    return Predicate(
        f"{name}({', '.join(each.name for each in made)})", passes, updates_only=all(each.updates_only for each in made)
    )


def _made(where: str, given: tuple[object, ...]) -> list[Predicate[Any]]:
    if not given:
        raise DeclarationError(f"{where} takes predicates, such as headway.predicates.content_changed(), and got none")
    return [predicate(where, each) for each in given]


def predicate(where: str, given: object) -> Predicate[Any]:
    """What is given as a predicate, as one. Raises DeclarationError when it can't be."""
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
            # One that forgot its `return` would turn everything away, and nobody would hear of it.
            if problem := answer_problem(answer):
                raise DeclarationError(problem)
            raise DeclarationError(f"it returned {answer!r}: a predicate returns True or False")
        return answer

    return Predicate(name, passes, updates_only=False)


def _check_texts(where: str, keys: tuple[object, ...]) -> None:
    for key in keys:
        if not isinstance(key, str):
            raise DeclarationError(f"{where} takes keys, such as {where}('colour'), not {key!r}")
