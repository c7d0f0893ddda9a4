"""An app: types and controllers that belong together. Misuse fails here, when something is declared."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypedDict, TypeVar, overload

from typing_extensions import Unpack

from headway._keywords import check_keywords, check_keywords_and
from headway.cache import CachedType, Index, Projected, Projection, Query
from headway.controller._checks import (
    FORM,
    check,
    check_backoff,
    check_lived_type,
    check_options,
    frozen_list,
    frozen_mapping,
    frozen_types,
    frozen_watches,
    function_problem,
    refuse,
    seconds_problem,
)
from headway.controller._daemons import Daemons
from headway.controller._definition import DeclaredAs, Definition, Initialiser, OnStart, OnStop, Reconciler, Source
from headway.controller._placement import Placement
from headway.controller._runtime import Runtime
from headway.controller._timers import Timers
from headway.errors import DeclarationError
from headway.mapper import Watch, When, predicate
from headway.queue import Backoff
from headway.resource import Columns, Hooks, Payload, Registry, Resource, ResourceType, Scope, name_problem

T = TypeVar("T", bound=Payload)
N = TypeVar("N", bound=Payload)
R = TypeVar("R", bound=Resource[Any] | Projected[Any])

# By type or projection; it can't be said that the keys may be of any such type, each with a mapper of its own.
Watches = Sequence[Watch[Any]]
Lived = Callable[[Runtime, R], Awaitable[None]]
"""``async def lived(rt, resource)``: a daemon or a timer."""

_DAEMON_FORM = """
    @app.daemon(TEAM)
    async def heartbeat(rt: headway.Runtime, team: headway.Resource[Team]) -> None: ..."""
_TIMER_FORM = """
    @app.timer(TEAM, every=60)
    async def check(rt: headway.Runtime, team: headway.Resource[Team]) -> None: ..."""


class LivedOptions(TypedDict, total=False):
    """What can be said of a daemon or a timer; as of `App.controller`."""

    watches: Watches | None
    indexes: Sequence[Index[Any, Any]]
    queries: Sequence[Query[Any, Any]]
    reads: Sequence[ResourceType[Any]] | None
    writes: Sequence[ResourceType[Any]] | None
    initialiser: Initialiser | None
    on_start: OnStart | None
    on_stop: OnStop | None
    concurrency: int
    deadline: float
    backoff: Backoff | None
    name: str


class ControllerOptions(LivedOptions, total=False):
    """What can be said of a controller besides what it manages; see `App.controller`."""

    sources: Mapping[str, Source] | None
    placement: Placement


@check_keywords
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
        # How many engines and workers have it open now.
        self._open = 0

    def _check_closed(self, what: str) -> None:
        """Refuse a declaration that those who have the app open would never hear of."""
        if self._open:
            raise DeclarationError(
                f"app {self.name!r} is open, and {what} would be left out without a word: declare it before open_engine"
            )

    @check_keywords
    def type(
        self,
        group: str,
        version: str,
        kind: str,
        payload: type[T],
        *,
        scope: Scope = Scope.NAMESPACE,
        hooks: Hooks[T] | None = None,
        columns: Columns | None = None,
    ) -> ResourceType[T]:
        """Declare and register a type: ``TEAM = app.type("staff", "v1", "Team", Team)``.

        Args:
            group, version, kind: its name: ``staff.v1.Team``.
            payload: the message class of its resources' ``data``.
            scope: where its resources live: in a namespace of a partition, in a partition, or in neither.
            hooks: defaults that every write fills in, and rules that every write must keep.
            columns: what `headway get` and `headway list` show of its data, as a title and the name of a field for
                each column: ``{"LEAD": "lead", "ROOMS": "office.rooms"}``.

        Raises DeclarationError, with the right form, when a part of it is wrong, and when the name is taken.
        """
        self._check_closed(f"type {group}.{version}.{kind}")
        declared: ResourceType[T] = ResourceType(
            group, version, kind, payload, scope=scope, hooks=hooks, columns=columns
        )
        self.registry.register(declared)
        return declared

    @check_keywords
    def converter(
        self,
        older: ResourceType[T],
        newer: ResourceType[N],
        *,
        up: Callable[[T], N],
        down: Callable[[N], T],
    ) -> None:
        """Declare how payloads of two versions of a kind are made from each other.

        Every reader then sees every resource of the kind in the version that it asks for. Further versions are
        declared one after the other, from the newest so far: they form a chain. Resources are stored as the newest,
        or as `store_as` says.

        Args:
            older: the version that was there first.
            newer: the one that follows it.
            up: makes a payload of the newer version, and loses nothing: ``down(up(x)) == x``.
            down: makes a payload of the older version.

        Raises DeclarationError, with the right form. `headway.testing.check_converters` tests the functions.
        """
        self._check_closed("this converter")
        self.registry.add_converter(older, newer, up, down)

    @check_keywords
    def store_as(self, type: ResourceType[Any]) -> None:
        """Store resources of this kind as this version, instead of as the newest one that a converter leads to.

        For the first step of an upgrade, while other processes on the store know only the older version, and for a
        rollback: what is stored as a newer version stays so while the older one cannot hold it. Raises DeclarationError
        for a version without a converter, and for a second storage version of one kind.
        """
        self._check_closed("this storage version")
        self.registry.store_as(type)

    @overload
    def controller(
        self,
        *,
        manages: ResourceType[T],
        when: When[Resource[T]] | None = None,
        **options: Unpack[ControllerOptions],
    ) -> Callable[[Reconciler[T]], Reconciler[T]]: ...
    @overload
    def controller(
        self,
        *,
        manages: Projection[T],
        when: When[Projected[T]] | None = None,
        **options: Unpack[ControllerOptions],
    ) -> Callable[[Reconciler[T]], Reconciler[T]]: ...
    def controller(
        self,
        *bare: object,
        manages: Any = None,
        when: When[Any] | None = None,
        watches: Watches | None = None,
        indexes: Sequence[Index[Any, Any]] = (),
        queries: Sequence[Query[Any, Any]] = (),
        sources: Mapping[str, Source] | None = None,
        reads: Sequence[ResourceType[Any]] | None = None,
        writes: Sequence[ResourceType[Any]] | None = None,
        initialiser: Initialiser | None = None,
        on_start: OnStart | None = None,
        on_stop: OnStop | None = None,
        concurrency: int = 1,
        deadline: float = 300.0,
        backoff: Backoff | None = None,
        placement: Placement = "singleton",
        name: str = "",
        **unknown: object,
    ) -> Callable[[Reconciler[Any]], Reconciler[Any]]:
        """Declare a controller; decorates its reconciler, an async function of a Runtime and a Request.

        Args:
            manages: the type whose resources are reconciled, or a projection of it.
            when: which changes of the managed type make it be reconciled; all, unless given.
            watches: further types, or projections, each with the mapper from its changes to managed resources: a list
                of ``headway.watch(TYPE, mapper, when=...)``.
            indexes: indexes on any of these, for reads of the cache and for mappers.
            queries: the queries that are asked of the cache.
            sources: what else, outside the store, makes a key be reconciled, by name.
            reads: what the run's client may read besides what is managed, watched and written; all, unless given.
            writes: what the run's client may write, outputs and statuses included; all, unless given.
            initialiser: runs first in every run, before anything is cached; when it fails the run does.
            on_start: is called in every run once it is primed, before the first mapper and the first reconcile.
            on_stop: is called with what ended the run (None: it was stopped) when everything else of it has ended.
            concurrency: how many keys are reconciled at once; one key never is.
            deadline: seconds that a reconcile may take before it is cancelled and counts as failed.
            backoff: between the attempts of a key that fails: 5 ms, doubling up to 1,000 s, unless given.
            placement: where it runs when several processes share a store: in one of them (``"singleton"``), in each
                (``"every_process"``), or each key in one of them (``headway.sharded(shards=16)``).
            name: the function's own name, with hyphens, unless given.

        What is given is copied: changing it afterwards changes nothing. Raises DeclarationError, with the right form.
        """

        if bare:
            raise DeclarationError(f"app.controller takes no {bare[0]!r}: say what it manages. The form is:{FORM}")

        def declare(reconcile: Reconciler[Any]) -> Reconciler[Any]:
            named = name or _name_of(reconcile)
            check_options(named, unknown, (*ControllerOptions.__annotations__, "manages", "when"), FORM)
            check_backoff(named, backoff)
            self._add(
                Definition(
                    name=named,
                    reconcile=reconcile,
                    manages=manages,
                    when=_when(named, when),
                    watches=frozen_watches(named, watches),
                    indexes=frozen_list(named, "indexes", indexes, "[BY_TEAM]"),
                    queries=frozen_list(named, "queries", queries, "[members_of]"),
                    sources=frozen_mapping(named, "sources", sources),
                    reads=frozen_types(named, "reads", reads),
                    writes=frozen_types(named, "writes", writes),
                    initialiser=initialiser,
                    on_start=on_start,
                    on_stop=on_stop,
                    concurrency=concurrency,
                    deadline=deadline,
                    backoff=backoff or Backoff(),
                    placement=placement,
                )
            )
            return reconcile

        return declare

    @check_keywords_and(LivedOptions.__annotations__)
    def daemon(
        self, type: CachedType[R], *, finalizer: bool = False, **options: Unpack[LivedOptions]
    ) -> Callable[[Lived[R]], Lived[R]]:
        """Declare a daemon; decorates ``async def daemon(rt, resource)``, which runs once for each resource of a type.

        It lives in a task of its own while the resource does: it is cancelled when the resource's deletion begins, or
        another one bears the name, and has ended before the next one of that name begins. One that raises is called
        again, after 0.5 s, doubling up to 60 s (``backoff``); one that returns is done with this resource for this run.
        Underneath it is a controller, and its options are a controller's; its tasks end with the controller's run.

        Args:
            type: of the resources, or a projection of it.
            finalizer: a deleted resource stays until its daemon has ended; not of a projection, which can't be written.

        Raises DeclarationError, with the right form.
        """
        check_lived_type("daemon", type, _DAEMON_FORM)

        def declare(function: Lived[R]) -> Lived[R]:
            named = options.get("name") or _name_of(function)
            check_options(named, options, (*LivedOptions.__annotations__, "finalizer"), _DAEMON_FORM)
            problem = function_problem("the daemon", function, 2)
            if finalizer and isinstance(type, Projection):
                problem = f"finalizer=True writes to the resource, and {type!r} is only read: give it the whole type"
            flag: object = finalizer
            if not isinstance(flag, bool):
                problem = f"finalizer must be True or False, not {flag!r}"
            if problem:
                raise refuse(named, problem, _DAEMON_FORM)
            check_backoff(named, options.get("backoff"))
            backoff = options["backoff"] = options.get("backoff") or Backoff(0.5, 60.0)
            daemons = Daemons(function, finalizer=finalizer, backoff=backoff)
            self._lived("daemon", named, type, daemons.reconcile, {"daemons": daemons.host}, options)
            return function

        return declare

    @check_keywords_and(LivedOptions.__annotations__)
    def timer(
        self, type: CachedType[R], *, every: float, jitter: float = 0.1, **options: Unpack[LivedOptions]
    ) -> Callable[[Lived[R]], Lived[R]]:
        """Declare a timer; decorates ``async def timer(rt, resource)``, called again and again for each resource.

        First when the resource is there, or the run has begun, then ``every`` so many seconds, give or take the part
        ``jitter`` of them, from the end of one call to the start of the next. A call is cancelled when the resource's
        deletion begins, or at the ``deadline``; one that raises is repeated with the controller's back-off. Underneath
        it is a controller, and its options are a controller's.

        Raises DeclarationError, with the right form.
        """
        check_lived_type("timer", type, _TIMER_FORM)

        def declare(function: Lived[R]) -> Lived[R]:
            named = options.get("name") or _name_of(function)
            check_options(named, options, (*LivedOptions.__annotations__, "every", "jitter"), _TIMER_FORM)
            given: object = jitter
            for problem in (
                function_problem("the timer", function, 2),
                seconds_problem("every", every) or (f"every={every} would never come" if math.isinf(every) else None),
                None
                if isinstance(given, int | float) and 0 <= given < 1
                else f"jitter must be a part, from 0 to below 1, not {given!r}",
            ):
                if problem:
                    raise refuse(named, problem, _TIMER_FORM)
            timers = Timers(function, every, jitter)
            self._lived("timer", named, type, timers.reconcile, {}, options)
            return function

        return declare

    def _lived(
        self,
        declared_as: DeclaredAs,
        name: str,
        type: CachedType[Any],
        reconcile: Reconciler[Any],
        sources: Mapping[str, Source],
        options: LivedOptions,
    ) -> None:
        check_backoff(name, options.get("backoff"))
        self._add(
            Definition(
                name=name,
                reconcile=reconcile,
                manages=type,
                watches=frozen_watches(name, options.get("watches")),
                indexes=frozen_list(name, "indexes", options.get("indexes"), "[BY_TEAM]"),
                queries=frozen_list(name, "queries", options.get("queries"), "[members_of]"),
                sources=frozen_mapping(name, "sources", sources),
                reads=frozen_types(name, "reads", options.get("reads")),
                writes=frozen_types(name, "writes", options.get("writes")),
                initialiser=options.get("initialiser"),
                on_start=options.get("on_start"),
                on_stop=options.get("on_stop"),
                concurrency=options.get("concurrency", 8),
                deadline=options.get("deadline", 300.0),
                backoff=options.get("backoff") or Backoff(),
                declared_as=declared_as,
            )
        )

    def _add(self, definition: Definition) -> None:
        self._check_closed(f"controller {definition.name!r}")
        check(definition, self.name, self.registry, self.controllers)
        self.controllers[definition.name] = definition


@asynccontextmanager
async def sealed(apps: Sequence[App]) -> AsyncIterator[None]:
    """Refuse further declarations of these apps until the block ends; several blocks may have one app open at once."""
    for app in apps:
        app._open += 1
    try:
        yield
    finally:
        for app in apps:
            app._open -= 1


def _name_of(function: object) -> str:
    name: str = getattr(function, "__name__", "")
    return name.replace("_", "-").strip("-")


def _when(name: str, given: When[Any] | None) -> Any:
    if given is None:
        return None
    try:
        return predicate("when", given)
    except DeclarationError as error:
        raise refuse(name, str(error)) from error
