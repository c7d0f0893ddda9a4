"""Arguments and options that commands share, and what they name: types, resources, apps and stores."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from headway.cli._running import Usage
from headway.controller import App
from headway.errors import InvalidArgument
from headway.resource import Registry, ResourceId, ResourceType, Scope, did_you_mean

if TYPE_CHECKING:
    from headway.storage import Backend


def combined(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Combine several of click's decorators into one."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def complete_type(*asked: Any) -> list[CompletionItem]:
    """Complete a type from the server. The implementation is imported only when it is used."""
    from headway.cli._completion import complete_type

    return complete_type(*asked)


def complete_name(*asked: Any) -> list[CompletionItem]:
    """Complete the name of a resource from the server."""
    from headway.cli._completion import complete_name

    return complete_name(*asked)


one_of_a_name = combined(
    click.argument("type", shell_complete=complete_type),
    click.argument("name", shell_complete=complete_name),
    click.option("--partition", default="", help="The partition, if it is not the default one."),
    click.option("--namespace", "-n", default="", help="The namespace, if it is not the default one."),
)

all_of_a_type = combined(
    click.argument("type", shell_complete=complete_type),
    click.option("--partition", default="*", help="Only resources in this partition."),
    click.option("--namespace", "-n", default="*", help="Only resources in this namespace."),
    click.option("--prefix", default="", help="Only resources whose names start with this."),
)


def find_type(written: str, registry: Registry) -> ResourceType[Any]:
    """Return the type with a name such as ``Team``, ``staff.Team`` or ``staff.v1.Team``, in any case. Raises Usage."""
    types = sorted(registry, key=lambda each: each.name)
    exact = [each for each in types if str(each.name) == written]
    wanted = written.lower()
    bearers = exact or [each for each in types if wanted in _spellings(each)]
    if len(bearers) == 1:
        return bearers[0]
    if bearers:
        names = ", ".join(str(each.name) for each in bearers)
        raise Usage(f"the type {written!r} is ambiguous; it could be {names}")
    if not types:
        raise Usage(f"type {written!r} not found: the server has no types")
    # Compare a kind only with kinds, since it is never similar to a full name.
    known = {str(each.name) if "." in written else each.name.kind for each in types}
    # The comparison ignores case, but the hint preserves it.
    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(wanted, by_lower, n=1)
    hint = f"; did you mean {by_lower[close[0]]!r}?" if close else did_you_mean(written, known)
    raise Usage(f"type {written!r} not found{hint} (`headway types` lists all types)")


def find_named(
    type: str, name: str, partition: str, namespace: str, registry: Registry
) -> tuple[ResourceType[Any], ResourceId]:
    """Return the type and the id of a resource. Omitted tenancy units get their defaults. Raises Usage."""
    found = find_type(type, registry)
    try:
        return found, found.id(name, partition=partition, namespace=namespace)
    except InvalidArgument as error:
        raise Usage(str(error)) from error


def find_listed(type: str, partition: str, namespace: str, registry: Registry) -> ResourceType[Any]:
    """Return the type to list. Raises Usage if its resources are never in the given unit. ``*`` means any unit."""
    found = find_type(type, registry)
    if namespace != "*" and found.scope in (Scope.CLUSTER, Scope.PARTITION):
        raise Usage(f"--namespace {namespace}: a {found.name} is in no namespace; leave it out")
    if partition != "*" and found.scope is Scope.CLUSTER:
        raise Usage(f"--partition {partition}: a {found.name} is in no partition; leave it out")
    return found


def _spellings(type: ResourceType[Any]) -> set[str]:
    group, version, kind = (part.lower() for part in type.name)
    return {kind, f"{group}.{kind}", f"{version}.{kind}", f"{group}.{version}.{kind}"}


def apps_at(reference: str) -> list[App]:
    """Return the app or apps at ``module:attribute``. Raises Usage if there are none."""
    given = object_at(reference, "an app", "module:attribute, such as staff.app:app")
    several = list(given) if isinstance(given, list | tuple) else [given]
    apps = [each for each in several if isinstance(each, App)]
    if not apps or len(apps) != len(several):
        raise Usage(f"{reference} is {given!r:.120}; it must be a headway.App, or a list of them")
    return apps


def object_at(reference: str, expected: str, form: str) -> Any:
    """Return the object that a reference such as ``module:attribute`` names. Raises Usage if there is none.

    ``expected`` and ``form`` say in errors what the reference should name, and how it is written.
    """
    module, colon, attribute = reference.partition(":")
    if not (module and colon and attribute):
        raise Usage(f"{reference!r} is not {expected}; write {form}")
    # Like `python -m`, find modules in the working directory.
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise Usage(f"{reference}: module {error.name!r} not found here or among installed packages") from error
        raise
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise Usage(f"{reference}: {module} has no {attribute!r}")
        found = getattr(found, part)
    return found


async def check_store_exists(argument: str, url: str) -> None:
    """Raise Usage if there is no store at a URL: opening it would create one."""
    # Imported here, because it loads the client of etcd.
    from headway.storage import etcd_address, store_exists

    if not await store_exists(url):
        # Shown without the password that the URL may contain.
        raise Usage(f"{argument}: no store found at {etcd_address(url) if url.startswith('etcd:') else url}")


def named_store(argument: str, url: str) -> AbstractAsyncContextManager[Backend]:
    """Return the store at a URL, not yet open. Raises Usage if the URL names none that lasts."""
    from headway.storage import open_store

    if url == "memory:":
        raise Usage(
            f'{argument}: "memory:" is a new, empty store for each process; give a lasting one, such as sqlite:PATH'
        )
    try:
        return open_store(url)
    except InvalidArgument as error:
        raise Usage(f"{argument}: {error}") from error
