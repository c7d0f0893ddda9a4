"""The controllers of one process: a supervisor for each, with its placement.

A process has a name. Under this name it holds the leases of the controllers that it leads and of its shards. The name
is also the member under which a controller that runs in every process keeps its fence. Names of processes must
therefore be unique. A process that keeps its name over restarts takes over at once what it held before, and continues
with its fences. Only one process at a time can have exclusive use of a store, so it needs no unique name and is always
called ``server``. Other processes have a default name of the host's name and random digits, because in containers
neither a host's name nor a process id is unique. With a default name, the leases of the previous process have to expire
first.
"""

from __future__ import annotations

import re
import socket
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from headway.client import HeldLease, LeaseClient
from headway.controller import Definition, Division, GrowingDefinition
from headway.engine._around import Around
from headway.engine._extension import Host
from headway.engine._options import Timing
from headway.errors import DeclarationError
from headway.informers import Informers
from headway.resource import Key, TypeName
from headway.rpc import Channel
from headway.run import (
    ControllerEvents,
    EventRecorder,
    EveryKey,
    Governor,
    Leading,
    Owed,
    Ownership,
    Run,
    Supervisor,
)

SERVER = "server"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,62}\Z")


def worker_name(given: str | None) -> str:
    """Return the name of a process without exclusive use of the store. Raises DeclarationError for an invalid name."""
    if given is None:
        host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:50].strip(".-") or "process"
        return f"{host}-{uuid.uuid4().hex[:8]}"
    if given == SERVER:
        raise DeclarationError(f"process={given!r} is reserved for a process that has the store alone: process='web-1'")
    checked: object = given
    if not isinstance(checked, str) or not _NAME.match(checked):
        raise DeclarationError(
            f"process={given!r} must be a name of up to 63 letters, digits and - . _ : that no other process has: "
            "process='web-1'"
        )
    return given


@dataclass(frozen=True, kw_only=True)
class Placing:
    """What the controllers of a process share. If ``process`` is None, they need no leases."""

    host: Host
    informers: Informers
    events: EventRecorder
    channel: Channel
    timing: Timing
    around: Around
    process: str | None

    def supervisors(self, definitions: Mapping[str, Definition]) -> list[Supervisor]:
        """Return the supervisors of controllers in this process, by the names of their fences."""
        return [self._supervisor(fence_name, definition) for fence_name, definition in definitions.items()]

    def _supervisor(self, fence_name: str, definition: Definition) -> Supervisor:
        growing = GrowingDefinition(self.around.definition(definition), self.host.registry)
        journal = None if self.host.journal is None else self.host.journal.of(fence_name)
        report = self.host.report if journal is None else journal.around(self.host.report)
        process = self.process or SERVER
        leading: Leading | None = None
        if self.process is not None and definition.placement == "singleton":
            client = LeaseClient(self.channel)
            check, warm = partial(_check, growing, self.informers), partial(_open, growing, self.informers)
            leading = Leading(client, fence_name, process, self.timing.lease_ttl, report, check=check, warm=warm)
        events, counts = ControllerEvents(fence_name, self.events), Counter[str]()
        gate, limit = self.host.gate_of(fence_name), definition.write_limit
        governor = None if limit is None else Governor(definition.full_name, limit, report)

        def run(owed: Owed, lease: HeldLease | None) -> Run:
            from headway.fights import Fights

            definition = growing.current
            placement = definition.placement
            ownership: Ownership
            if isinstance(placement, Division):
                ownership = placement.ownership(definition, process, self.timing.lease_ttl, owed)
            else:
                member = "" if placement == "singleton" else self.process or ""
                ownership = EveryKey(definition, member)
            return Run(
                growing,
                informers=self.informers,
                channel=self.channel,
                registry=self.host.registry,
                report=report,
                fence_name=fence_name,
                gate=gate,
                ownership=ownership,
                lease=lease,
                owed=owed,
                stall_limit=self.timing.stall_limit,
                journal=journal,
                new_mapper=self.around.new_mapper,
                record_event=events,
                counts=counts,
                governor=governor,
                new_fights=partial(Fights, definition, writer_of=self._writer_of),
            )

        return Supervisor(
            definition.name,
            run,
            report,
            fence_name=fence_name,
            leading=leading,
            added_watches=lambda: tuple(map(str, growing.added)),
            gate=gate,
            growing=growing,
            journal=journal,
            process=process,
            events=events,
            counts=counts,
            governor=governor,
        )

    def _writer_of(self, type: TypeName, key: Key, revision: int) -> str:
        """Return the writer of a revision of a resource, or "" if this process does not know it."""
        for each in self.host.supervisors:
            if each.run is not None and each.run.wrote(type, key, revision):
                return f"controller {each.fence_name}"
        journal = self.host.journal
        found = None if journal is None else journal.writes.at({revision}).get(revision)
        if found is None or found.key != key or found.type.unversioned != type.unversioned:
            return ""
        return found.writer


def _check(growing: GrowingDefinition, informers: Informers) -> None:
    for type in growing.current.types:
        for known in informers.opened(type):
            known.check()


def _open(growing: GrowingDefinition, informers: Informers) -> None:
    for type in growing.current.types:
        informers.informer_for(type)
