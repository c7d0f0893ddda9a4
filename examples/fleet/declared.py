"""What a fleet is made of: the app, its three types, and the names that they share."""

from __future__ import annotations

import headway
from headway import field


@headway.message
class App:
    """A program that should run, in so many copies."""

    command: list[str] = field(1)
    replicas: int = field(2, kind="uint32")
    environment: dict[str, str] = field(3)


@headway.message
class Instance:
    """One copy: one process. It never changes: a changed App gets new ones."""

    app: str = field(1)
    command: list[str] = field(2)
    environment: dict[str, str] = field(3)
    port: int = field(4, kind="uint32")


@headway.message
class Endpoints:
    """Where an app's healthy instances answer."""

    addresses: list[str] = field(1)


app = headway.App("fleet")
APP = app.type("fleet", "v1", "App", App)
INSTANCE = app.type("fleet", "v1", "Instance", Instance)
ENDPOINTS = app.type("fleet", "v1", "Endpoints", Endpoints)

INSTANCES_BY_APP = headway.indexes.by(INSTANCE, "app", lambda instance: instance.data.app)

PROCESS_FINALIZER = "fleet-process"
"""Holds an Instance until its process has been stopped."""

RUNNING, HEALTHY = "Running", "Healthy"
"""The conditions in an Instance's status, under the name of the controller that writes them."""
STATUS = "instances"


def condition(instance: headway.Resource[Instance], type: str) -> headway.Condition | None:
    """A condition of an Instance, if it has been written."""
    status = instance.status.get(STATUS)
    found = [] if status is None else [each for each in status.conditions if each.type == type]
    return found[0] if found else None


def is_running(instance: headway.Resource[Instance]) -> bool:
    """Whether the Instance had a process when its status was written."""
    found = condition(instance, RUNNING)
    return found is not None and found.state == headway.ConditionState.TRUE


def is_healthy(instance: headway.Resource[Instance]) -> bool:
    """Whether the last health check of the Instance's present process went well."""
    found = condition(instance, HEALTHY)
    return found is not None and found.state == headway.ConditionState.TRUE
