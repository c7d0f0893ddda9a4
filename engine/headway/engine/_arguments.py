"""The apps of a program combined, and checks of the arguments of `open_engine` and `open_workers`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from headway.base import check_plain, repr_text, safe_report
from headway.builtin import NAME
from headway.controller import App, Definition
from headway.errors import DeclarationError, InvalidArgument
from headway.events import Report
from headway.resource import Registry, ScopedType
from headway.subscription import Topic


def combine_apps(apps: Sequence[App]) -> tuple[Registry, dict[str, Definition]]:
    """Return the types of the apps, and their controllers by the names of their fences. Raises DeclarationError."""
    registry = Registry()
    definitions: dict[str, Definition] = {}
    for app in apps:
        given: object = app
        if not isinstance(given, App):
            raise DeclarationError(
                f"expected headway.App objects after the store or the endpoints, not {repr_text(given)}"
            )
        for type in app.registry:
            if type.name not in registry or registry.resolve(type.name) is not type:
                registry.register(type)
        registry.add_declared(app.registry)
        for name, definition in app.controllers.items():
            fence_name = f"{app.name}/{name}"
            if fence_name in definitions:
                raise DeclarationError(f"two apps are named {app.name!r} and both have a controller {name!r}")
            definitions[fence_name] = definition
    return registry, definitions


def combine_topics(apps: Sequence[App]) -> dict[str, Topic[Any]]:
    """Return the topics of the apps by name. Raises DeclarationError if two apps declare the same one."""
    topics: dict[str, Topic[Any]] = {}
    for app in apps:
        for name, topic in app.topics.items():
            if topics.setdefault(name, topic) is not topic:
                raise DeclarationError(f"two apps declare topic {name!r}: rename one of them")
    return topics


class Program(NamedTuple):
    """What the apps of one process declare together.

    Attributes:
        registry: the types.
        definitions: the controllers, by the names of their fences.
        topics: the topics, by name.
    """

    registry: Registry
    definitions: dict[str, Definition]
    topics: dict[str, Topic[Any]]


def program_of(apps: Sequence[App]) -> Program:
    """Return what the apps declare together. Raises DeclarationError if they do not fit together."""
    registry, definitions = combine_apps(apps)
    program = Program(registry, definitions, combine_topics(apps))
    _refuse_own_name(apps)
    _refuse_shared_names(apps)
    return program


def _refuse_shared_names(apps: Sequence[App]) -> None:
    """Raise DeclarationError if controllers of two apps manage one kind under one name.

    They would share a finalizer and a status, which belong to the resource and have the controller's name: the first
    one that has cleaned up would let the resource go before the other one has.
    """
    named: dict[tuple[object, str], str] = {}
    for app in apps:
        for name, definition in app.controllers.items():
            if isinstance(definition.manages, ScopedType):
                continue  # the scopes of two controllers may have no resource in common
            other = named.setdefault((definition.manages.kind, name), app.name)
            if other != app.name:
                raise DeclarationError(
                    f"apps {other!r} and {app.name!r} both have a controller {name!r} of {definition.manages.name}: "
                    "they would share its finalizer and its status. Give one of them another name, such as "
                    f"@app.controller(..., name='{app.name}-{name}')"
                )


def _refuse_own_name(apps: Sequence[App]) -> None:
    """Raise DeclarationError for an app with the name of Headway's own app."""
    if any(app.name == NAME for app in apps):
        raise DeclarationError(f"an app named {NAME!r} would share the fences of Headway's own controllers: rename it")


def report_of(given: Report | None) -> Report:
    """Return a report that never raises. If none was given, it logs. Raises DeclarationError."""
    if given is not None:
        check_plain("report", given, 1, "an event", "open_engine(..., report=headway.observe.log_report())")
        return safe_report(given)
    from headway.observe import log_report

    return safe_report(log_report())


def check_flag(name: str, given: object) -> None:
    """Raise DeclarationError if a value is neither True nor False."""
    if not isinstance(given, bool):
        raise DeclarationError(f"{name}={given!r} must be True or False")


def check_store(given: object) -> None:
    """Raise DeclarationError if a value is not a store, such as an app given before the store."""
    if not isinstance(given, str | AbstractAsyncContextManager):
        raise DeclarationError(
            f"open_engine expects a store first, such as 'memory:' or 'sqlite:staff.db', not {given!r}"
        )


def check_tls(given: object) -> None:
    """Raise DeclarationError if a value is neither None nor a TLS context."""
    if not is_tls(given):
        raise DeclarationError(f"tls={given!r} must be a TLS context, such as tls=headway.rpc.server_tls(...)")


def is_tls(given: object) -> bool:
    """Return True for None and for a TLS context."""
    if given is None:
        return True
    # Imported here, because it takes long and most programs don't need it.
    from ssl import SSLContext

    return isinstance(given, SSLContext)


def check_endpoints(given: object) -> None:
    """Raise InvalidArgument if a value is neither addresses nor a channel. `open_channel` checks each address."""
    if not isinstance(given, str | Sequence) and not _has_methods(given, "unary", "stream"):
        raise InvalidArgument(
            "expected the addresses of engines, such as '127.0.0.1:9000' or ['unix:/path/to/socket'], "
            f"or a channel for a test, got {repr_text(given)}"
        )


def check_backend(given: object) -> None:
    """Raise DeclarationError if an async context manager that was given as a store yields something else."""
    if not _has_methods(given, "read", "commit"):
        raise DeclarationError(
            "open_engine expects a store first, such as 'memory:', 'sqlite:staff.db' or a backend of your own, "
            f"not something that opens {repr_text(given)}"
        )


def _has_methods(given: object, *names: str) -> bool:
    return not isinstance(given, type) and all(callable(getattr(given, name, None)) for name in names)
