"""A watched type with its mapper and its predicate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic

from typing_extensions import TypeVar

from headway.errors import DeclarationError
from headway.mapper._mappers import Mapper, Need, mapper_name, mapper_problem, needs_of
from headway.mapper._predicates import Predicate, When, predicate
from headway.resource import Payload, ResourceType

P = TypeVar("P", bound=Payload, default=Any)


@dataclass(frozen=True, slots=True)
class Watch(Generic[P]):
    """A type that a controller watches. Made by `watch`."""

    type: ResourceType[P]
    mapper: Mapper[P]
    when: Predicate[P] | None = None

    @property
    def needs(self) -> frozenset[Need]:
        """The indexes that the mapper reads, as far as it says so."""
        return needs_of(self.mapper)

    def __str__(self) -> str:
        when = "" if self.when is None else f" when {self.when.name}"
        return f"{self.type.name} by {mapper_name(self.mapper)}{when}"


def watch(type: ResourceType[P], mapper: Mapper[P], *, when: When[P] | None = None) -> Watch[P]:
    """``watches=[headway.watch(ROUTE, service_of, when=headway.content_changed())]``

    Args:
        type: what is watched.
        mapper: from its changes to managed resources.
        when: which of its changes are mapped; all, unless given.

    Raises DeclarationError.
    """
    given: object = type
    if not isinstance(given, ResourceType):
        raise DeclarationError(f"watch takes a type, as app.type(...) returned it, and a mapper, not {given!r}")
    problem = mapper_problem(mapper)
    if problem:
        raise DeclarationError(f"watches[{type.name}] {problem}")
    return Watch(type, mapper, None if when is None else predicate(f"watches[{type.name}]: when", when))
