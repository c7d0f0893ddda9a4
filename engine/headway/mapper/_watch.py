"""A watched type with its mapper and its predicate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from headway._keywords import check_keywords
from headway.cache import CachedType, Projection
from headway.errors import DeclarationError
from headway.mapper._mappers import Mapper, Need, R, mapper_name, mapper_problem, needs_of
from headway.mapper._predicates import Predicate, When, predicate
from headway.resource import ResourceType


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
        when = "" if self.when is None else f" when {self.when.name}"
        return f"{self.type.name} by {mapper_name(self.mapper)}{when}"


@check_keywords
def watch(type: CachedType[R], mapper: Mapper[R], *, when: When[R] | None = None) -> Watch[R]:
    """``watches=[headway.watch(ROUTE, service_of, when=headway.predicates.content_changed())]``

    Args:
        type: the watched type, or a projection of it.
        mapper: maps its changes to managed resources.
        when: selects the changes that are mapped. Default: all.

    Raises DeclarationError.
    """
    given: object = type
    if not isinstance(given, ResourceType | Projection):
        raise DeclarationError(f"watch expects a type, as app.type(...) returned it, and a mapper, not {given!r}")
    problem = mapper_problem(mapper)
    if problem:
        raise DeclarationError(f"watches[{type.name}] {problem}")
    return Watch(type, mapper, None if when is None else predicate(f"watches[{type.name}]: when", when))
