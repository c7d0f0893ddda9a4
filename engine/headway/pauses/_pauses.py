"""The controllers that an operator has paused, as one process knows them from the store: an extension."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cached_property

import trio
from typing_extensions import override

from headway.base import retry_delay, wall_time
from headway.cache import Informer
from headway.engine import Extension, Host
from headway.errors import HeadwayError
from headway.events import Report
from headway.pauses._reported import ControllerPaused, Paused, Resumed
from headway.pauses._type import PAUSE, pause_name
from headway.reconcile import Gate
from headway.resource import Resource, created_at
from headway.run import wait_primed

UNREADABLE = "the payload of its pause does not decode"
"""The reason of a pause that this program cannot read."""


def pauses_extension(host: Host) -> Extension:
    """Return the extension, of an engine or of workers, that stops the controllers that an operator has paused."""
    pauses = Pauses(host)
    host.gate_of = pauses.gate_of
    return Extension(tasks=[pauses.follow])


class Pauses:
    """The pauses of the store of an engine or of workers. Call `follow` in a task; every controller has a gate.

    A pause stays in force while the store cannot be read. One that does not decode is reported, and in force, too: its
    name says which controller an operator has paused.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        # By the names of the pauses.
        self._gates: dict[str, PauseGate] = {}

    @cached_property
    def _informer(self) -> Informer:
        return self._host.informers.informer_for(PAUSE)

    def gate_of(self, controller: str) -> Gate:
        """Return a new gate for a controller, which is closed while the controller is paused."""
        gate = self._gates[pause_name(controller)] = PauseGate(controller, self._informer, self._read)
        return gate

    async def follow(self, _: Host) -> None:
        """Follow the store's pauses, until canceled."""
        failures = 0
        while True:
            subscription = self._informer.subscribe((), lambda *_: None)
            try:
                while True:
                    self._read()
                    await subscription.next()
                    failures = 0
            except HeadwayError:
                # The store was replaced or rolled back. The informer reports it, and begins anew.
                await trio.sleep(retry_delay(failures))
                failures += 1
            finally:
                subscription.close()

    def _read(self) -> None:
        store = self._informer.store
        if not store.primed:
            # Keep what was known of the store before.
            return
        found = dict[str, tuple[str | None, float]]()
        for key, message in store.entries.items():
            pause = Resource(PAUSE, message)
            if not pause.is_deleting:
                since = created_at(pause.id.uid)
                if self._informer.is_undecodable(key, message):
                    found[pause.name] = UNREADABLE, since
                else:
                    # On a cluster, the pause has a name of its own.
                    found[pause_name(pause.data.controller)] = pause.data.reason, since
        for name, gate in self._gates.items():
            why, gate.since = found.get(name, (None, 0.0))
            gate.set(why)


class PauseGate(Gate):
    """The gate of a controller, which is closed while an operator has paused it.

    Args:
        informer: the informer of `PAUSE`.
        read: sets the gates as the informer says.

    Attributes:
        since: the time of the pause, on the clock of who paused it; 0 if that is not known.
    """

    def __init__(self, controller: str, informer: Informer, read: Callable[[], None]) -> None:
        super().__init__(controller)
        self.since = 0.0
        self._informer, self._read = informer, read

    @property
    @override
    def seconds(self) -> float:
        return max(wall_time() - self.since, 0.0) if self.since else 0.0

    @override
    async def wait_known(self, stall_limit: float) -> None:
        # The stream may be older than the run. A pause that it has not delivered yet comes as any other change does.
        await wait_primed(self._informer, 0, stall_limit)
        self._read()

    @override
    async def wait_read(self, revision: int) -> None:
        with suppress(HeadwayError):
            await self._informer.wait_complete(revision)
        self._read()

    @override
    def report_to(self, report: Report, queued: int) -> None:
        controller, reason = self.controller, self.reason
        report(Resumed(controller, queued) if reason is None else Paused(controller, reason))

    @override
    def error(self) -> ControllerPaused:
        return ControllerPaused(
            f"controller {self.controller} is paused{f' ({self.reason})' if self.reason else ''} and has pending work: "
            f"resume it with `headway resume {self.controller}`"
        )
