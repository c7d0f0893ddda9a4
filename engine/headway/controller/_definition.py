"""What can be said of a controller, and of the app that it belongs to. Misuse fails here, when it is declared."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from headway.cache import OWNER_INDEX, CachedType, Index, Projection, Query, index_owner, stored_type
from headway.controller._request import Request, Result
from headway.errors import DeclarationError
from headway.mapper import Mapper
from headway.queue import Backoff
from headway.resource import Hooks, Payload, Registry, ResourceId, ResourceType, Scope, name_problem

if TYPE_CHECKING:
    from headway.controller._runtime import Runtime

T = TypeVar("T", bound=Payload)

Reconciler = Callable[["Runtime", Request], Awaitable[Result]]
Enqueue = Callable[[ResourceId], None]
"""Have a managed resource reconciled. Raises InvalidArgument for an id of another type."""
Source = Callable[["Runtime", Enqueue], Awaitable[None]]
"""``async def source(rt, enqueue)``: runs as long as the controller does and calls ``enqueue(id)`` for the managed
resources that something outside the store concerns. One that returns has ended quietly; one that raises ends the run,
which is then started again."""
Initialiser = Callable[["Runtime"], Awaitable[None]]

_FORM = """
    @app.controller(manages=TEAM, watches={ACCOUNT: headway.map_owner()}, concurrency=8)
    async def accounts(rt: headway.Runtime, request: headway.Request) -> None: ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A controller as it was declared by `App.controller`, whose arguments these are."""

    name: str
    reconcile: Reconciler
    manages: CachedType[Any]
    watches: Mapping[CachedType[Any], Mapper]
    indexes: Sequence[Index[Any, Any]] = ()
    queries: Sequence[Query[Any, Any]] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)
    initialiser: Initialiser | None = None
    concurrency: int = 1
    deadline: float = 300.0
    backoff: Backoff = field(default_factory=Backoff)

    @property
    def types(self) -> list[CachedType[Any]]:
        """The N+1 types: the managed one first."""
        return [self.manages, *(type for type in self.watches if type is not self.manages)]

    def indexes_of(self, type: CachedType[Any]) -> list[Index[Any, Any]]:
        """The indexes on a type, with the one by owner that every type has but the managed one."""
        declared = [index for index in self.indexes if index.type is type]
        return declared if type is self.manages else [index_owner(type, name=OWNER_INDEX), *declared]


class App:
    """Types and controllers that belong together. ``headway.open_engine(store, app)`` runs them.

    Args:
        name: what the app is called; its controllers' fences are kept under ``name/controller``.
    """

    def __init__(self, name: str) -> None:
        problem = name_problem("an app's name", name)
        if problem:
            raise DeclarationError(f"{problem}: headway.App('staff')")
        self.name = name
        self.registry = Registry()
        self.controllers: dict[str, Definition] = {}

    def type(
        self,
        group: str,
        version: str,
        kind: str,
        payload: type[T],
        *,
        scope: Scope = Scope.NAMESPACE,
        hooks: Hooks[T] | None = None,
    ) -> ResourceType[T]:
        """Declare and register a type: ``TEAM = app.type("staff", "v1", "Team", Team)``."""
        declared: ResourceType[T] = ResourceType(group, version, kind, payload, scope=scope, hooks=hooks)
        self.registry.register(declared)
        return declared

    def controller(
        self,
        *,
        manages: CachedType[Any],
        watches: Mapping[Any, Mapper] | None = None,
        indexes: Sequence[Index[Any, Any]] = (),
        queries: Sequence[Query[Any, Any]] = (),
        sources: Mapping[str, Source] | None = None,
        initialiser: Initialiser | None = None,
        concurrency: int = 1,
        deadline: float = 300.0,
        backoff: Backoff | None = None,
        name: str = "",
    ) -> Callable[[Reconciler], Reconciler]:
        """Declare a controller; decorates its reconciler, an async function of a Runtime and a Request.

        Args:
            manages: the type whose resources are reconciled, or a projection of it.
            watches: further types, or projections, each with the mapper from its changes to managed resources.
            indexes: indexes on any of these, for reads of the cache.
            queries: the queries that are asked of the cache.
            sources: what else, outside the store, makes a key be reconciled, by name.
            initialiser: runs first in every run, before anything is cached; when it fails the run does.
            concurrency: how many keys are reconciled at once; one key never is.
            deadline: seconds that a reconcile may take before it is cancelled and counts as failed.
            backoff: between the attempts of a key that fails: 5 ms, doubling up to 1,000 s, unless given.
            name: the function's own name, with hyphens, unless given.

        Raises DeclarationError, with the right form.
        """

        def declare(reconcile: Reconciler) -> Reconciler:
            named = name or getattr(reconcile, "__name__", "").replace("_", "-").strip("-")
            _check_shapes(named, watches=watches, sources=sources, indexes=indexes, queries=queries, backoff=backoff)
            definition = Definition(
                name=named,
                reconcile=reconcile,
                manages=manages,
                watches=dict(watches or {}),
                indexes=tuple(indexes),
                queries=tuple(queries),
                sources=dict(sources or {}),
                initialiser=initialiser,
                concurrency=concurrency,
                deadline=deadline,
                backoff=backoff or Backoff(),
            )
            _check(definition, self)
            self.controllers[definition.name] = definition
            return reconcile

        return declare


def _check_shapes(name: str, *, indexes: object, queries: object, backoff: object, **mappings: object) -> None:
    """What has to hold before a Definition can be made of it."""
    problem = None
    for field_name, given in mappings.items():
        if given is not None and not isinstance(given, Mapping):
            problem = f"{field_name} must be a mapping, such as {{ACCOUNT: ...}}, not {given!r}"
    for field_name, given, example in (("indexes", indexes, "[BY_TEAM]"), ("queries", queries, "[members_of]")):
        if isinstance(given, str) or not isinstance(given, Sequence):
            problem = f"{field_name} must be a list, such as {example}, not {given!r}"
    if backoff is not None and not isinstance(backoff, Backoff):
        problem = f"backoff must be a headway.Backoff(base, maximum), not {backoff!r}"
    if problem:
        raise DeclarationError(f"controller {name!r}: {problem}. The form is:{_FORM}")


def _check(definition: Definition, app: App) -> None:
    for problem in (
        name_problem("a controller's name", definition.name),
        f"the name {definition.name!r} is taken" if definition.name in app.controllers else None,
        _function_problem("the reconciler", definition.reconcile, 2),
        _types_problem(definition, app),
        _indexes_problem(definition),
        _queries_problem(definition),
        _numbers_problem(definition),
        *(_function_problem(f"source {name!r}", each, 2) for name, each in definition.sources.items()),
        None if definition.initialiser is None else _function_problem("the initialiser", definition.initialiser, 1),
    ):
        if problem:
            raise DeclarationError(f"controller {definition.name!r}: {problem}. The form is:{_FORM}")


def _function_problem(what: str, function: object, arguments: int) -> str | None:
    if not callable(function):
        return f"{what} must be an async function, not {function!r}"
    if not inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # asks whether it is async, not whether it is callable
    ):
        return f"{what} {function!r} must be an async function (`async def`)"
    try:
        inspect.signature(function).bind(*(None for _ in range(arguments)))
    except TypeError:
        return f"{what} must take {arguments} arguments, and takes {inspect.signature(function)}"
    return None


def _types_problem(definition: Definition, app: App) -> str | None:
    for field_name, type in [("manages", definition.manages), *(("watches", each) for each in definition.watches)]:
        given: object = type
        if not isinstance(given, ResourceType | Projection):
            return f"{field_name} has {given!r}, which is no type: use what app.type(...) returned"
        if type.name not in app.registry or app.registry.resolve(type.name) is not stored_type(type):
            return f"{field_name} has {type.name}, which is not a type of app {app.name!r}: declare it by app.type(...)"
    names = [type.name for type in definition.types]
    for type in definition.types:
        if names.count(type.name) > 1:
            return f"it has {type.name} in two forms: manage and watch the whole type, or one projection of it"
    for type, mapper in definition.watches.items():
        given = mapper
        if not callable(given):
            return f"watches[{type.name}] must be a mapper, such as headway.map_owner(), not {given!r}"
        if inspect.iscoroutinefunction(given):
            return f"watches[{type.name}] must be a plain function: a mapper must not wait, and {given!r} is async"
        try:
            inspect.signature(given).bind(None, None)
        except TypeError:
            return f"watches[{type.name}] must take a resource and a cache, and takes {inspect.signature(given)}"
    return None


def _indexes_problem(definition: Definition) -> str | None:
    taken = set()
    for index in definition.indexes:
        given: object = index
        if not isinstance(given, Index):
            return f"indexes has {given!r}: give it what headway.index(ACCOUNT, 'team', lambda account: ...) returned"
        if index.type not in definition.types:
            return f"indexes has {index!r}: {index.type!r} is neither managed nor watched"
        if index.name == OWNER_INDEX:
            return f"indexes has {index!r}, whose name is the engine's own"
        if (index.type, index.name) in taken:
            return f"indexes has {index!r} twice, or two of one name"
        taken.add((index.type, index.name))
    return None


def _queries_problem(definition: Definition) -> str | None:
    taken = set()
    for query in definition.queries:
        given: object = query
        if not isinstance(given, Query):
            return f"queries has {given!r}: give it functions that are decorated by @headway.query(...)"
        if query.name in taken:
            return f"queries has {query!r} twice, or two of one name"
        taken.add(query.name)
        for need in query.needs:
            if isinstance(need, Index) and need not in definition.indexes:
                return f"{query!r} needs {need!r}: add it to `indexes`"
            if not isinstance(need, Index) and need not in definition.types:
                return f"{query!r} needs {need!r}, which is neither managed nor watched: add it to `watches`"
    return None


def _numbers_problem(definition: Definition) -> str | None:
    concurrency: object = definition.concurrency
    if not isinstance(concurrency, int) or isinstance(concurrency, bool) or concurrency < 1:
        return f"concurrency must be a whole number from 1 on, not {concurrency!r}"
    deadline: object = definition.deadline
    if not isinstance(deadline, int | float) or math.isnan(deadline) or deadline <= 0:
        return f"deadline must be a number of seconds above 0, not {deadline!r}"
    return None
