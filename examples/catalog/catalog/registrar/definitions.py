"""The file of a registrar: workloads, and the checks of those that a selector chooses.

    type: catalog.v2beta1.Workload
    name: web-1
    data:
      addresses: [{host: 127.0.0.1}]
      ports: {http: {port: 8080, protocol: PROTOCOL_HTTP}}
    ---
    type: catalog.v2beta1.HealthChecks
    name: web
    data:
      workloads: {prefixes: [web-]}
      health_checks:
      - {name: alive, http: {url: "http://127.0.0.1:8080/"}, interval: 5s, timeout: 1s, deregister_critical_after: 60s}
    ---
    type: registrar.v1.CommandChecks
    name: web
    data:
      workloads: {names: [web-1]}
      checks:
      - {name: disk, command: [test, -w, /srv], interval: 30s}

A command has its own type, since Consul's HealthCheck has none.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import headway
from catalog import metadata_filter
from catalog.messages import HealthCheck, HealthChecks, HTTPCheck, TCPCheck, Workload, WorkloadSelector
from catalog.selecting import selected_paths, workload_path
from catalog.types import HEALTH_CHECKS, WORKLOAD
from headway import ResourceType, field, manifest
from headway.resource import Registry

INTERVAL, TIMEOUT = 10.0, 5.0
"""The seconds of a check that does not say them."""


@headway.message(name="registrar.v1.CommandCheck")
class CommandCheck:
    """A check by the exit status of a command: 0 is passing, 1 is a warning, and any other is critical."""

    name: str = field(1)
    command: list[str] = field(2)
    interval: datetime.timedelta | None = field(3)
    timeout: datetime.timedelta | None = field(4)
    deregister_critical_after: datetime.timedelta | None = field(5)


@headway.message(name="registrar.v1.CommandChecks")
class CommandChecks:
    """The commands that check the workloads that it selects."""

    workloads: WorkloadSelector | None = field(1)
    checks: list[CommandCheck] = field(2)


COMMAND_CHECKS = ResourceType("registrar", "v1", "CommandChecks", CommandChecks)


class Check(NamedTuple):
    """One check of one workload. Times are in seconds.

    Attributes:
        probe: the request, connection or command.
        deregister_after: how long the check may be critical until the workload is deleted; 0 for any time.
    """

    name: str
    probe: HTTPCheck | TCPCheck | CommandCheck
    interval: float
    timeout: float
    deregister_after: float


class Registered(NamedTuple):
    """A workload and its checks."""

    workload: headway.Resource[Workload]
    checks: tuple[Check, ...]

    @property
    def deregister_after(self) -> float:
        """The shortest `Check.deregister_after` of its checks; 0 if it is never deleted."""
        return min((each.deregister_after for each in self.checks if each.deregister_after), default=0.0)


class DefinitionError(Exception):
    """A check in a file of definitions is invalid, or of a kind that a registrar cannot make."""


def load(path: Path) -> list[Registered]:
    """Return the workloads of a file, with their checks.

    Raises:
        ManifestError: the file has problems.
        DefinitionError: a check cannot be made, or two checks of a workload have the same name.
        ValueError: the filter of a selector is not valid.
    """
    registry = Registry()
    for type in (WORKLOAD, HEALTH_CHECKS, COMMAND_CHECKS):
        registry.register(type)
    documents = manifest.load_file(path, registry)
    chosen: list[tuple[WorkloadSelector | None, headway.Resource[Any], list[Check]]] = []
    for each in documents:
        if isinstance(each.data, HealthChecks):
            chosen.append((each.data.workloads, each, [_check(one) for one in each.data.health_checks]))
        elif isinstance(each.data, CommandChecks):
            chosen.append((each.data.workloads, each, [_command(one) for one in each.data.checks]))
    found = []
    for each in documents:
        if isinstance(each.data, Workload):
            checks = tuple(check for selector, of, some in chosen if _covers(selector, of, each) for check in some)
            _check_names(each, checks)
            found.append(Registered(each, checks))
    return found


def _covers(selector: WorkloadSelector | None, of: headway.Resource[Any], workload: headway.Resource[Workload]) -> bool:
    path = workload_path(workload)
    if selector is None or not any(map(path.startswith, selected_paths(of.id, selector))):
        return False
    return not selector.filter or metadata_filter.parse(selector.filter)(workload.metadata)


def _check(check: HealthCheck) -> Check:
    probe = check.http or check.tcp
    if probe is None:
        raise DefinitionError(
            f"check {check.name!r}: a registrar cannot make this kind; use `http` or `tcp`, such as "
            "`tcp: {address: '127.0.0.1:8080'}`, or a command in registrar.v1.CommandChecks"
        )
    return _timed(check, probe)


def _command(check: CommandCheck) -> Check:
    if not check.command:
        raise DefinitionError(f"check {check.name!r}: command must not be empty, such as [test, -w, /srv]")
    return _timed(check, check)


def _timed(check: HealthCheck | CommandCheck, probe: HTTPCheck | TCPCheck | CommandCheck) -> Check:
    if not check.name:
        raise DefinitionError("a check must have a name, such as `name: alive`")
    times = (check.interval, check.timeout, check.deregister_critical_after)
    interval, timeout, after = (each.total_seconds() if each is not None else 0.0 for each in times)
    if min(interval, timeout, after) < 0:
        raise DefinitionError(f"check {check.name!r}: times must not be negative, such as '10s'")
    return Check(check.name, probe, interval or INTERVAL, timeout or TIMEOUT, after)


def _check_names(workload: headway.Resource[Workload], checks: Sequence[Check]) -> None:
    names = [each.name for each in checks]
    if double := sorted({name for name in names if names.count(name) > 1}):
        raise DefinitionError(f"{workload.id} has two checks with the name {double[0]!r}: give each its own")
