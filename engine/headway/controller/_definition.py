"""The definition of a controller: its options, its placement, and the types of its functions.

The placement says where a controller runs if several processes share a store. ``"singleton"``: only the process that
holds the controller's lease reconciles. ``"every_process"``: each process reconciles every key, under a fence of its
own. A `Division`: each process reconciles some of the keys.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypedDict, TypeVar

from headway.base import Positive, Range, Seconds, answer_problem, repr_text
from headway.cache import OWNER_INDEX, PRIORITY_INDEX, CachedType, Index, Query, by_owner
from headway.controller._write_limit import WriteLimit
from headway.errors import DeclarationError
from headway.mapper import Predicate, Watch
from headway.protobuf import Payload
from headway.queue import Backoff
from headway.reconcile import Request, Result, Runtime
from headway.resource import ResourceId, ResourceType, is_form_of

T = TypeVar("T", bound=Payload)

Reconciler = Callable[[Runtime, Request[T]], Awaitable[Result]]
Enqueue = Callable[[ResourceId], None]
"""A function that enqueues a managed resource. Raises InvalidArgument for an id of another type."""
Source = Callable[[Runtime, Enqueue], Awaitable[None]]
"""``async def source(rt, enqueue)``: calls ``enqueue(id)`` for resources affected by an event outside the store.

It runs as long as the controller's run, but may return early. If it raises, the run ends and is restarted.
"""
Initialiser = Callable[[Runtime], Awaitable[None]]
OnStart = Callable[[Runtime], Awaitable[None] | None]
"""``on_start(rt)``: called when the run is primed, before anything is mapped or reconciled."""
OnStop = Callable[[Runtime, BaseException | None], Awaitable[None] | None]
"""``on_stop(rt, error)``: called when everything else of the run has ended; ``error`` is None if the run was stopped.
"""


class Division(ABC):
    """A placement that divides the keys among the processes, such as `headway.sharded`."""

    __slots__ = ()

    @abstractmethod
    def ownership(self, definition: Definition, process: str, ttl: float, owed: Any) -> Any:
        """Return the `headway.run.Ownership` of a run.

        Args:
            process: the name of the process, which no other one has.
            ttl: the ttl of its leases, in seconds.
            owed: the work that the previous run in this process left, a `headway.run.Owed`.
        """


Placement = Literal["singleton", "every_process"] | Division


class GivenOptions(TypedDict, total=False):
    """The options of every controller, daemon and timer, as `App.controller` describes them.

    `Options` has them as a run uses them, with their defaults.
    """

    watches: Sequence[Watch[Any]] | None
    indexes: Sequence[Index[Any, Any]] | None
    queries: Sequence[Query[Any, Any]] | None
    reads: Iterable[ResourceType[Any]] | None
    writes: Iterable[ResourceType[Any]] | None
    initialiser: Initialiser | None
    on_start: OnStart | None
    on_stop: OnStop | None
    concurrency: Positive
    deadline: Annotated[float, Range(0, math.inf, unit="seconds", above=True)]
    backoff: Backoff | None
    write_limit: WriteLimit | None
    name: str


class GivenControllerOptions(GivenOptions, total=False):
    """The options of a controller except ``manages`` and ``when``."""

    sources: Mapping[str, Source] | None
    placement: Placement
    min_interval: Seconds


def _none() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a controller, a daemon or a timer. All parts are immutable."""

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
    min_interval: float = 0.0
    priority: Callable[[Any], int] | None = None
    placement: Placement = "singleton"
    write_limit: WriteLimit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition(Options):
    """A controller as declared by `App.controller`, `App.daemon` or `App.timer`."""

    name: str
    app: str = ""
    reconcile: Reconciler[Any]
    manages: CachedType[Any]
    when: Predicate[Any] | None = None
    declared_as: Literal["controller", "daemon", "timer"] = "controller"

    @property
    def full_name(self) -> str:
        """The app's name and the controller's, such as "staff/teams": two apps may have a controller of one name.

        Without an app, as in a test of a run, it is the name alone.
        """
        return f"{self.app}/{self.name}" if self.app else self.name

    @property
    def types(self) -> list[CachedType[Any]]:
        """The managed type, followed by the watched types."""
        return [self.manages, *(type for type in self.watches if type is not self.manages)]

    def caches(self, asked: CachedType[Any]) -> bool:
        """Return True if the controller manages or watches the type, in a form that is read by ``asked``."""
        return any(is_form_of(type, asked) for type in self.types)

    def indexes_of(self, type: CachedType[Any]) -> list[Index[Any, Any]]:
        """Return the indexes on a type, with one by owner for each watched type, and for the managed type if needed."""
        declared = [index for index in self.indexes if is_form_of(type, index.type)]
        if type is self.manages and self.priority is not None:
            declared.append(_by_priority(type, self.priority))
        if type in self.watches or self._needs_owner_index():
            return [by_owner(type, name=OWNER_INDEX), *declared]
        return declared

    def _needs_owner_index(self) -> bool:
        """Return True if a mapper looks up managed resources by owner."""
        needs = (need for watch in self.watches.values() for need in watch.needs)
        return any(need.index is None and (need.type is None or is_form_of(self.manages, need.type)) for need in needs)


def _by_priority(type: CachedType[Any], function: Callable[[Any], object]) -> Index[Any, int]:
    def priority(resource: Any) -> int:
        answer = function(resource)
        if isinstance(answer, int) and -10 <= answer <= 10:
            return int(answer)
        raise DeclarationError(answer_problem(answer) or f"it returned {repr_text(answer)}: use an int from -10 to 10")

    return Index(type, PRIORITY_INDEX, priority, single=True)
