"""An app: types and controllers that belong together. Incorrect declarations fail here, when they are made."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar, cast, overload

from typing_extensions import Unpack

from headway.base import Delay, Fraction, check_keywords, checked, checked_and
from headway.cache import CachedType, Projected, Projection
from headway.controller._checks import (
    FORM,
    check,
    check_options,
    checked_options,
    checked_when,
    function_problem,
    refuse,
)
from headway.controller._daemons import Daemons, R, ResourceFunction, Timers
from headway.controller._definition import Definition, GivenControllerOptions, GivenOptions, Reconciler
from headway.errors import DeclarationError
from headway.mapper import Predicate, When
from headway.protobuf import Payload, named_if_declared
from headway.queue import Backoff
from headway.resource import Columns, Hooks, Registry, Resource, ResourceType, Scope, ScopedType, name_problem
from headway.subscription import Topic

T = TypeVar("T", bound=Payload)
N = TypeVar("N", bound=Payload)

_DAEMON_FORM = """
    @app.daemon(TEAM)
    async def heartbeat(rt: headway.Runtime, team: headway.Resource[Team]) -> None: ..."""
_TIMER_FORM = """
    @app.timer(TEAM, every=60)
    async def check(rt: headway.Runtime, team: headway.Resource[Team]) -> None: ..."""


_CONCURRENCY = 8
"""The default ``concurrency`` of daemons and timers: a slow call for one resource must not delay all others."""


@checked()
class App:
    """A group of types and controllers. Run it with ``headway.open_engine(store, app)``.

    Args:
        name: the app's name. It is part of the name of each controller's fence, ``name/controller``.
    """

    def __init__(self, name: str) -> None:
        problem = name_problem("an app's name", name)
        if problem:
            raise DeclarationError(f"{problem}: headway.App('staff')")
        self.name = name
        self.registry = Registry()
        self.controllers: dict[str, Definition] = {}
        self.topics: dict[str, Topic[Any]] = {}
        # The number of engines and workers that have this app open now.
        self._open = 0

    def _check_closed(self, what: str) -> None:
        """Raise DeclarationError if the app is open, because the engine would ignore the declaration."""
        if self._open:
            raise DeclarationError(f"app {self.name!r} is open and would ignore {what}: declare it before open_engine")

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
        max_fields: int = 100_000,
        owned_fields: bool = False,
    ) -> ResourceType[T]:
        """Declare and register a type: ``TEAM = app.type("staff", "v1", "Team", Team)``.

        Args:
            group, version, kind: the type's name: ``staff.v1.Team``.
            payload: the message class of its resources' ``data``.
            scope: whether each resource belongs to a namespace (the default), to a partition, or to neither.
            hooks: functions that fill in defaults and validate the resource on every write.
            columns: additional columns for `headway get` and `headway list`, as a mapping from titles to field names,
                such as ``{"LEAD": "lead", "ROOMS": "office.rooms"}``.
            max_fields: the maximum number of fields of a payload, including nested messages. Hooks, indexes and clients
                decode a payload without a pause.
            owned_fields: whether several writers may share a resource, each owning the fields that it applies: see
                ``fields`` of `Client.apply`. One version of a kind may have it.

        Raises:
            DeclarationError: an argument is invalid, or the name already exists. The message shows the correct form.
        """
        # A refused declaration must not name the class: it may be declared again under another name.
        with named_if_declared(payload):
            declared: ResourceType[T] = ResourceType(
                group,
                version,
                kind,
                payload,
                scope=scope,
                hooks=hooks,
                columns=columns,
                max_fields=max_fields,
                owned_fields=owned_fields,
            )
            self.add_type(declared)
        return declared

    @check_keywords
    def add_type(self, type: ResourceType[Any]) -> None:
        """Register a type that another package has made, such as one of Kubernetes. Raises DeclarationError."""
        self._check_closed(f"type {type.name}")
        self.registry.register(type)

    @checked()
    def converter(
        self,
        older: ResourceType[T],
        newer: ResourceType[N],
        *,
        up: Callable[[T], N],
        down: Callable[[N], T],
    ) -> None:
        """Declare how to convert payloads between two versions of a kind.

        You can then read every resource of the kind in either version. To add more versions, declare a converter from
        the newest version so far to each new one, so that they form a chain. Resources are stored in the newest
        version unless you select another with `store_as`.

        Args:
            older: the earlier version.
            newer: the version that follows it.
            up: converts a payload to the newer version without loss: ``down(up(x)) == x``.
            down: converts a payload to the older version.

        Use `headway.testing.check_converters` to test the two functions.

        Raises:
            DeclarationError: an argument is invalid. The message shows the correct form.
        """
        from headway.versions import add_converter

        self._check_closed("this converter")
        add_converter(self.registry, older, newer, up, down)

    @checked()
    def store_as(self, type: ResourceType[Any]) -> None:
        """Store resources of this kind in this version instead of the newest one.

        Use it for the first step of an upgrade, while other processes on the store know only the older version, and for
        a rollback. However, a resource that the older version cannot represent stays in its newer version.

        Raises:
            DeclarationError: the version has no converter, or its kind already has another storage version.
        """
        from headway.versions import store_as

        self._check_closed("this storage version")
        store_as(self.registry, type)

    @overload
    def topic(
        self,
        name: str,
        payload: builtins.type[T],
        *,
        snapshot: Callable[[str], Mapping[str, T]],
        wildcard: bool = False,
    ) -> Topic[T]: ...
    @overload
    def topic(
        self, name: str, *, snapshot: Callable[[str], Mapping[str, bytes]], wildcard: bool = False
    ) -> Topic[bytes]: ...
    @checked()
    def topic(
        self,
        name: str,
        payload: builtins.type[Any] | None = None,
        *,
        snapshot: Callable[[str], Mapping[str, Any]],
        wildcard: bool = False,
    ) -> Topic[Any]:
        """Declare a topic for events of your own: ``RATES = app.topic("rates", Rate, snapshot=current)``.

        Args:
            name: the topic's name.
            payload: the message class of its events. Default: events are bytes.
            snapshot: returns the current events of a subject, as a mapping from subjects. It is called with a subject,
                or with ``"*"`` for all of them, and must not wait.
            wildcard: whether a subscriber may ask for all subjects at once.

        Raises DeclarationError, with the correct form.
        """
        self._check_closed(f"topic {name!r}")
        with named_if_declared(payload):
            topic: Topic[Any] = Topic(name, payload, snapshot, wildcard=wildcard)
            if name in self.topics:
                raise DeclarationError(
                    f"app.topic: topic {name!r} already exists in app {self.name!r}: use another name"
                )
        self.topics[name] = topic
        return topic

    @overload
    def controller(
        self,
        *,
        manages: ResourceType[T] | ScopedType[T],
        when: When[Resource[T]] | None = None,
        priority: Callable[[Resource[T]], int] | None = None,
        **options: Unpack[GivenControllerOptions],
    ) -> Callable[[Reconciler[T]], Reconciler[T]]: ...
    @overload
    def controller(
        self,
        *,
        manages: Projection[T],
        when: When[Projected[T]] | None = None,
        priority: Callable[[Projected[T]], int] | None = None,
        **options: Unpack[GivenControllerOptions],
    ) -> Callable[[Reconciler[T]], Reconciler[T]]: ...
    def controller(
        self,
        *bare: object,
        manages: Any = None,
        when: When[Any] | None = None,
        **options: Any,
    ) -> Callable[[Reconciler[Any]], Reconciler[Any]]:
        """Declare a controller by decorating its reconciler, an async function of a Runtime and a Request.

        Args:
            manages: the type whose resources are reconciled, or a scope or projection of it.
            when: selects the changes of the managed type that trigger a reconcile. Default: all.
            watches: a list of ``headway.watch(TYPE, mapper, when=...)``. If a resource of such a type changes, the
                mapper returns the managed resources to reconcile.
            indexes: indexes on the managed and watched types. Reads of the cache and mappers can use them.
            queries: the queries that can be passed to ``rt.cache.query``.
            sources: a mapping from names to sources, which trigger reconciles for events outside the store.
            reads: further types that the client may read, beyond those managed, watched and written. Default: all.
            writes: the types that the run's client may write, including outputs and statuses. Default: all.
            initialiser: runs first in every run, before anything is cached. If it fails, the run fails.
            on_start: called in every run once it is primed, before the first mapper and the first reconcile.
            on_stop: called at the end of every run, with the error that ended it, or None if it was stopped.
            concurrency: the number of keys that are reconciled at once. Default: 1. A single key is never reconciled
                concurrently.
            deadline: the time, in seconds, after which a reconcile is canceled and counts as failed. Default: 300.
            backoff: the delay between attempts of a failing key. Default: 5 ms, doubling up to 1,000 s.
            min_interval: the time, in seconds, from the start of a key's reconcile until the next one may start.
                Changes in between are handled together by the next one. Default: 0.
            priority: a function of a managed resource that returns an int from -10 to 10. Of two keys that wait, the
                one with the higher priority is reconciled first. Default: 0 for all.
            write_limit: the rate of the controller's writes in one process, ``headway.WriteLimit(10, burst=50)`` for
                10 a second. Writes above it wait. Default: no limit.
            placement: where the controller runs if several processes share a store. Use ``"singleton"`` for a single
                process, ``"every_process"`` for all of them, or ``headway.sharded(shards=16)`` to divide the keys.
            name: the controller's name. Default: the function's name, with hyphens.

        Arguments are copied, so later changes to them have no effect.

        Raises:
            DeclarationError: an argument is invalid. The message shows the correct form.
        """

        if bare:
            raise DeclarationError(f"app.controller got {bare[0]!r}, but expected manages=TYPE. The form is:{FORM}")

        def declare(reconcile: Reconciler[Any]) -> Reconciler[Any]:
            name = _name_of(reconcile, options)
            check_options(name, options, (*GivenControllerOptions.__annotations__, "manages", "priority", "when"), FORM)
            self._add("controller", name, reconcile, manages, options, checked_when(name, when))
            return reconcile

        return declare

    @checked_and(GivenOptions.__annotations__, type="TEAM")
    def daemon(
        self, type: CachedType[R], *, finalizer: bool = False, **options: Unpack[GivenOptions]
    ) -> Callable[[ResourceFunction[R]], ResourceFunction[R]]:
        """``@app.daemon(TEAM)`` declares a daemon: ``async def daemon(rt, resource)``, run once for each resource.

        Each resource gets its own task. The task is canceled when the deletion of the resource begins, when another
        resource replaces it under the same name, or when the controller's run ends. In case of a replacement, the new
        daemon starts only after the old one has ended. If a daemon raises, it is called again after 0.5 s, doubling up
        to 60 s (``backoff``). If it returns, it is not called again for this resource until the next run.

        A daemon is implemented as a controller and takes the options of `App.controller`, except ``manages``, ``when``,
        ``sources`` and ``placement``. ``concurrency`` is 8 by default, and limits only the starts of daemons.

        Args:
            type: the type of the resources, or a projection of it.
            finalizer: keep a deleted resource until its daemon has ended. Not allowed for a projection, which is
                read-only.

        Raises DeclarationError, with the correct form.
        """

        def declare(function: ResourceFunction[R]) -> ResourceFunction[R]:
            name = _name_of(function, options)
            check_options(name, options, (*GivenOptions.__annotations__, "finalizer"), _DAEMON_FORM)
            problem = function_problem("the daemon", function, "a runtime and a resource")
            if finalizer and isinstance(type, Projection):
                problem = f"finalizer=True writes to the resource, but {type!r} is read-only: use the whole type"
            if problem:
                raise refuse(name, problem, _DAEMON_FORM)
            backoff = options.get("backoff") or Backoff(0.5, 60.0)
            daemons = Daemons(function, finalizer=finalizer, backoff=backoff)
            more = {"concurrency": _CONCURRENCY, **options, "backoff": backoff, "sources": {"daemons": daemons.host}}
            self._add("daemon", name, daemons.reconcile, type, more)
            return function

        return declare

    @checked_and(GivenOptions.__annotations__, type="TEAM")
    def timer(
        self, type: CachedType[R], *, every: Delay, jitter: Fraction = 0.1, **options: Unpack[GivenOptions]
    ) -> Callable[[ResourceFunction[R]], ResourceFunction[R]]:
        """``@app.timer(TEAM, every=60)`` declares a timer: ``async def timer(rt, resource)``, called for each resource.

        The first call is made when the resource appears or the run begins. The delay from the end of one call to the
        start of the next is ``every`` seconds, varied at random by the fraction ``jitter``. A call is canceled when the
        resource's deletion begins, or at the ``deadline``. A call that raises is repeated with the controller's
        back-off.

        A timer is implemented as a controller and takes the options of `App.controller`, except ``manages``, ``when``,
        ``sources`` and ``placement``. ``concurrency``, the number of calls at once, is 8 by default.

        Raises DeclarationError, with the correct form.
        """

        def declare(function: ResourceFunction[R]) -> ResourceFunction[R]:
            name = _name_of(function, options)
            check_options(name, options, (*GivenOptions.__annotations__, "every", "jitter"), _TIMER_FORM)
            if problem := function_problem("the timer", function, "a runtime and a resource"):
                raise refuse(name, problem, _TIMER_FORM)
            timers = Timers(function, every, jitter)
            self._add("timer", name, timers.reconcile, type, {"concurrency": _CONCURRENCY, **options})
            return function

        return declare

    def _add(
        self,
        declared_as: Literal["controller", "daemon", "timer"],
        name: str,
        reconcile: Reconciler[Any],
        manages: CachedType[Any],
        options: Mapping[str, Any],
        when: Predicate[Any] | None = None,
    ) -> None:
        self._check_closed(f"controller {name!r}")
        given = checked_options(name, {**options, "name": name})
        definition = Definition(
            app=self.name, reconcile=reconcile, manages=manages, when=when, declared_as=declared_as, **given
        )
        check(definition, self.name, self.registry, self.controllers)
        self.controllers[name] = definition


@asynccontextmanager
async def sealed(apps: Sequence[App]) -> AsyncIterator[None]:
    """Reject further declarations of these apps until the block ends. Several blocks may have one app open at once."""
    for app in apps:
        app._open += 1
    try:
        yield
    finally:
        for app in apps:
            app._open -= 1


def _name_of(function: object, options: Mapping[str, Any]) -> str:
    if (given := options.get("name")) is not None:
        # An empty name is refused like any other invalid one, because it may come from an unset variable.
        return cast("str", given)
    name: str = getattr(function, "__name__", "")
    return name.replace("_", "-").strip("-")
