"""The controllers of one process: a supervisor for each, placed as it was declared.

A process has a name. It holds the leases of the controllers that this process leads and of the shards that it has,
and it is the member under which a controller that runs in every process keeps its fence. So no other process may have
it; and a process that keeps it over its restarts takes over at once what its former self still held, and goes on with
its fences. The process that alone has the store needs no name of its own: there is one of it at a time, so it is
``server`` and stays so. Any other one's, unless given, is made of the host's name and chance, because nothing else is
surely nobody else's: neither a host's name nor a process id is, in containers. Then its former self's leases have to
run out.
"""

from __future__ import annotations

import re
import socket
import uuid
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from headway.cache import Informers
from headway.client import LeaseClient
from headway.controller import Definition, Leading, Owed, Run, Sharded, ShardedRun, Supervisor
from headway.errors import DeclarationError
from headway.events import Report
from headway.resource import Registry
from headway.rpc import Channel

SERVER = "server"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,62}\Z")


def worker_name(given: str | None) -> str:
    """The name of a process that hasn't the store alone. Raises DeclarationError for one that it can't have."""
    if given is None:
        host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:50].strip(".-") or "process"
        return f"{host}-{uuid.uuid4().hex[:8]}"
    if given == SERVER:
        raise DeclarationError(f"process={given!r} is the name of a process that has the store alone: process='web-1'")
    checked: object = given
    if not isinstance(checked, str) or not _NAME.match(checked):
        raise DeclarationError(
            f"process={given!r} must be a name of up to 63 letters, digits and - . _ : that no other process has: "
            "process='web-1'"
        )
    return given


class Placing(NamedTuple):
    """What all controllers of a process are run with. ``process`` None: they are nobody else's, and take no lease."""

    informers: Informers
    channel: Channel
    registry: Registry
    report: Report
    stall_limit: float
    process: str | None
    lease_ttl: float


def supervisor(fence_name: str, definition: Definition, placing: Placing) -> Supervisor:
    """The one that runs a controller in this process."""
    leading: Leading | None = None
    process = placing.process
    if process is not None and definition.placement == "singleton":
        leading = Leading(
            LeaseClient(placing.channel),
            fence_name,
            process,
            placing.lease_ttl,
            placing.report,
            check=partial(_check, definition, placing.informers),
            warm=partial(_open, definition, placing.informers),
        )
    make = partial(_run, fence_name, definition, placing)
    return Supervisor(definition.name, make, placing.report, fence_name=fence_name, leading=leading)


def _check(definition: Definition, informers: Informers) -> None:
    for type in definition.types:
        for known in informers.known(type):
            known.check()


def _open(definition: Definition, informers: Informers) -> None:
    for type in definition.types:
        informers.shared(type)


def _run(fence_name: str, definition: Definition, placing: Placing, owed: Owed) -> Run:
    run: Callable[..., Run] = Run
    member = "" if definition.placement == "singleton" or placing.process is None else placing.process
    if isinstance(definition.placement, Sharded):
        # A shard is a member as well, named as its number, and so may a process be.
        member = f"members/{placing.process or SERVER}"
        run = partial(ShardedRun, process=placing.process or SERVER, lease_ttl=placing.lease_ttl)
    return run(
        definition,
        informers=placing.informers,
        channel=placing.channel,
        registry=placing.registry,
        report=placing.report,
        fence_name=fence_name,
        member=member,
        owed=owed,
        stall_limit=placing.stall_limit,
    )
