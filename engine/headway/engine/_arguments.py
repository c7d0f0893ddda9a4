"""The apps of a program combined, and checks of the arguments of `open_engine` and `open_workers`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from headway.access import Authorizer
from headway.base import check_plain, safe_report
from headway.builtin import NAME
from headway.controller import App, Definition
from headway.errors import DeclarationError
from headway.events import Report
from headway.resource import Registry
from headway.rpc import Limits
from headway.subscription import Topic


def combine_apps(apps: Sequence[App]) -> tuple[Registry, dict[str, Definition]]:
    """Return the types of the apps, and their controllers by the names of their fences. Raises DeclarationError."""
    registry = Registry()
    definitions: dict[str, Definition] = {}
    for app in apps:
        given: object = app
        if not isinstance(given, App):
            raise DeclarationError(f"open_engine expects headway.App objects after the store, not {given!r}")
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
    """Raise DeclarationError if a value is not a list of addresses, or says nothing of who may do what there."""
    check_flag("insecure", insecure)
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(each, str) for each in given):
        raise DeclarationError(f"listen={given!r} must be a list of addresses, such as listen=['127.0.0.1:9000']")
    if access is not None and not isinstance(access, Authorizer):
        raise DeclarationError(
            f"access={access!r:.200} must be an authorizer, such as "
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


def check_tls(given: object) -> None:
    """Raise DeclarationError if a value is neither None nor a TLS context."""
    if given is not None:
        # Imported here, because it takes long and most programs don't need it.
        from ssl import SSLContext

        if not isinstance(given, SSLContext):
            raise DeclarationError(f"tls={given!r} must be a TLS context, such as tls=headway.rpc.server_tls(...)")


def check_limits(given: object) -> None:
    """Raise DeclarationError if a value is neither None nor limits."""
    if given is not None and not isinstance(given, Limits):
        raise DeclarationError(f"limits={given!r} must be limits, such as limits=headway.rpc.Limits(connections=500)")


def refuse_own_name(apps: Sequence[App]) -> None:
    """Raise DeclarationError for an app with the name of Headway's own app."""
    if any(app.name == NAME for app in apps):
        raise DeclarationError(f"an app named {NAME!r} would share the fences of Headway's own controllers: rename it")
