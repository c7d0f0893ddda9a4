"""The apps of a program combined, and checks of the arguments of `open_engine` and `open_workers`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from os import PathLike
from typing import Any, NamedTuple

from headway.access import Authorizer
from headway.base import check_plain, check_text, check_token, repr_text, safe_report
from headway.builtin import NAME
from headway.controller import App, Definition
from headway.errors import DeclarationError, InvalidArgument
from headway.events import Report
from headway.resource import Registry, ScopedType
from headway.rpc import Limits
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
        registry.add_chains(app.registry)
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


class RunOptions(NamedTuple):
    """The options that `open_engine` and `open_workers` share. `open_engine` describes them."""

    report: Report | None
    lag_limit: float
    stall_limit: float
    lease_ttl: float
    shutdown_bound: float
    hard_exit: float | None
    gc_freeze: bool
    block_limit: float | None
    journal: str | PathLike[str] | None = None
    journal_bytes: int = 0

    def check(self) -> None:
        """Raise DeclarationError for the first option that is invalid."""
        for name in ("stall_limit", "lease_ttl", "shutdown_bound"):
            check_seconds(name, getattr(self, name))
        if not 1 <= self.lease_ttl <= 3600:
            raise DeclarationError(f"lease_ttl={self.lease_ttl!r} must be from 1 to 3600 seconds, such as lease_ttl=15")
        if self.lag_limit != math.inf:
            check_seconds("lag_limit", self.lag_limit)
        for name in ("hard_exit", "block_limit"):
            if getattr(self, name) is not None:
                check_seconds(name, getattr(self, name))
        check_flag("gc_freeze", self.gc_freeze)
        given: object = self.journal_bytes
        if isinstance(given, bool) or not isinstance(given, int) or given < 0:
            raise DeclarationError(
                f"journal_bytes={given!r} must be a number of bytes >= 0, such as journal_bytes=16 << 20"
            )
        if self.journal is not None and not isinstance(self.journal, str | PathLike):
            raise DeclarationError(f"journal={repr_text(self.journal)} must be a path, such as journal='journal.jsonl'")
        if self.report is not None:
            check_plain("report", self.report, 1, "an event", "open_engine(..., report=headway.observe.log_report())")

    def safe_report(self) -> Report:
        """Return a report that never raises. If none was given, it logs."""
        if self.report is not None:
            return safe_report(self.report)
        from headway.observe import log_report

        return safe_report(log_report())


def check_seconds(name: str, given: object) -> None:
    """Raise DeclarationError if a value is not a number of seconds above 0."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not (0 < given < math.inf):
        raise DeclarationError(f"{name}={given!r} must be a number of seconds above 0, such as {name}=10")


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


def check_listen(given: object, access: object, *, insecure: bool) -> None:
    """Raise DeclarationError if a value is not a list of addresses, or if it has no access setting."""
    check_flag("insecure", insecure)
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(each, str) for each in given):
        raise DeclarationError(f"listen={given!r} must be a list of addresses, such as listen=['127.0.0.1:9000']")
    if access is not None and not isinstance(access, Authorizer):
        raise DeclarationError(
            f"access={repr_text(access)} must be an authorizer, such as "
            "access=headway.access.Authorizer(headway.access.load_access('access.yaml'))"
        )
    if given and access is not None and insecure:
        raise DeclarationError(
            f"listen={list(given)!r}: give access=, which decides who may do what, or insecure=True, and not both"
        )
    if given and access is None and not insecure:
        raise DeclarationError(
            f"listen={list(given)!r} needs either access=headway.access.Authorizer(...), which decides who may do "
            "what, or insecure=True, which lets every client that can connect do everything"
        )


def check_http(given: object, access: object, tls: object, *, insecure: bool) -> None:
    """Raise DeclarationError if a value is neither None nor an address for HTTP that these settings allow."""
    if given is None:
        return
    # Imported here, as with TLS.
    from headway.http import check_http_address

    if not isinstance(given, str):
        raise DeclarationError(f"http={repr_text(given)} must be an address, such as http='127.0.0.1:8080'")
    if access is None and not insecure:
        raise DeclarationError(
            f"http={given!r} needs either access=headway.access.Authorizer(...), which decides who may do what, or "
            "insecure=True, which lets every program on this machine do everything"
        )
    try:
        check_http_address(given, controlled=access is not None)
    except InvalidArgument as error:
        raise DeclarationError(f"http={given!r}: {error}") from None
    if tls is not None:
        from headway.rpc import ServerTls

        if not isinstance(tls, ServerTls):
            raise DeclarationError(f"tls={tls!r} must come from headway.rpc.server_tls(...) for an engine with http=")


def check_tls(given: object) -> None:
    """Raise DeclarationError if a value is neither None nor a TLS context."""
    if not _is_tls(given):
        raise DeclarationError(f"tls={given!r} must be a TLS context, such as tls=headway.rpc.server_tls(...)")


def check_connection(tls: object, server_name: object, token: object, insecure: object) -> None:
    """Raise InvalidArgument if an argument of a connection to engines is of another class than declared."""
    check_token(token() if callable(token) else token)
    if not _is_tls(tls):
        raise InvalidArgument(f"tls must be a TLS context, such as headway.rpc.client_tls(...), not {repr_text(tls)}")
    if server_name is not None:
        check_text("server_name", server_name, "'engine.example.com'")
    if not isinstance(insecure, bool):
        raise InvalidArgument(f"insecure must be True or False, not {repr_text(insecure)}")


def _is_tls(given: object) -> bool:
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


def check_wrap_channel(given: object) -> None:
    """Raise DeclarationError if a value is neither None nor a function of a channel."""
    if given is not None and not callable(given):
        raise DeclarationError(
            f"wrap_channel={repr_text(given)} must be a function of a channel, such as "
            "wrap_channel=headway.testing.ScriptedChannel().over"
        )


def _has_methods(given: object, *names: str) -> bool:
    return not isinstance(given, type) and all(callable(getattr(given, name, None)) for name in names)


def check_limits(given: object) -> None:
    """Raise DeclarationError if a value is neither None nor limits."""
    if given is not None and not isinstance(given, Limits):
        raise DeclarationError(f"limits={given!r} must be limits, such as limits=headway.rpc.Limits(connections=500)")


def refuse_shared_names(apps: Sequence[App]) -> None:
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


def refuse_own_name(apps: Sequence[App]) -> None:
    """Raise DeclarationError for an app with the name of Headway's own app."""
    if any(app.name == NAME for app in apps):
        raise DeclarationError(f"an app named {NAME!r} would share the fences of Headway's own controllers: rename it")
