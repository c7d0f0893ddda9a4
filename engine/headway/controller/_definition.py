"""A controller as it was declared, and the functions that a declaration is made of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from headway.cache import OWNER_INDEX, CachedType, Index, Query, by_owner
from headway.controller._placement import Placement
from headway.controller._request import Request, Result
from headway.mapper import Predicate, Watch
from headway.queue import Backoff
from headway.resource import Payload, ResourceId, ResourceType

if TYPE_CHECKING:
    from headway.controller._runtime import Runtime

T = TypeVar("T", bound=Payload)

Reconciler = Callable[["Runtime", Request[T]], Awaitable[Result]]
Enqueue = Callable[[ResourceId], None]
"""Have a managed resource reconciled. Raises InvalidArgument for an id of another type."""
Source = Callable[["Runtime", Enqueue], Awaitable[None]]
"""``async def source(rt, enqueue)``: runs as long as the controller does and calls ``enqueue(id)`` for the managed
resources that something outside the store concerns. One that returns has ended quietly; one that raises ends the run,
which is then started again."""
Initialiser = Callable[["Runtime"], Awaitable[None]]
OnStart = Callable[["Runtime"], Awaitable[None] | None]
"""``on_start(rt)``: the run is primed, and nothing has been mapped or reconciled yet."""
OnStop = Callable[["Runtime", BaseException | None], Awaitable[None] | None]
"""``on_stop(rt, error)``: everything of the run has ended, because of the error, or (None) because it was stopped."""

DeclaredAs = Literal["controller", "daemon", "timer"]


def _none() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A controller as it was declared by `App.controller`, whose arguments these are. Nobody else holds its parts."""

    name: str
    reconcile: Reconciler[Any]
    manages: CachedType[Any]
    when: Predicate[Any] | None = None
    watches: Mapping[CachedType[Any], Watch[Any]] = field(default_factory=_none)
    indexes: Sequence[Index[Any, Any]] = ()
    queries: Sequence[Query[Any, Any]] = ()
    sources: Mapping[str, Source] = field(default_factory=_none)
    reads: frozenset[ResourceType[Any]] | None = None
    writes: frozenset[ResourceType[Any]] | None = None
    initialiser: Initialiser | None = None
    on_start: OnStart | None = None
    on_stop: OnStop | None = None
    concurrency: int = 1
    deadline: float = 300.0
    backoff: Backoff = field(default_factory=Backoff)
    placement: Placement = "singleton"
    declared_as: DeclaredAs = "controller"

    @property
    def types(self) -> list[CachedType[Any]]:
        """The N+1 types: the managed one first."""
        return [self.manages, *(type for type in self.watches if type is not self.manages)]

    def indexes_of(self, type: CachedType[Any]) -> list[Index[Any, Any]]:
        """The indexes on a type, with the one by owner that every watched one has; the managed one, if it is needed."""
        declared = [index for index in self.indexes if index.type is type]
        if type in self.watches or self._needs_owner_index():
            return [by_owner(type, name=OWNER_INDEX), *declared]
        return declared

    def _needs_owner_index(self) -> bool:
        """Whether a mapper reads which managed resources are owned by something."""
        needs = (need for watch in self.watches.values() for need in watch.needs)
        return any(need.index is None and need.type in (None, self.manages) for need in needs)
