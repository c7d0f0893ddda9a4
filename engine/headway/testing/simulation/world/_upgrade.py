"""An upgrade of the program in a run: the old one ends, and the new one begins on the same store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import trio

from headway.controller import App
from headway.resource import Registry
from headway.testing.simulation.world._injector import Injector
from headway.testing.simulation.world._own_modules import own_clocks
from headway.testing.simulation.world._process import MakeApp, Process
from headway.testing.simulation.world._server import Server

_GRACE = 30.0
"""The number of seconds after which an old program that does not end is killed."""


class Upgrades:
    """The upgrades of one run.

    Attributes:
        types: the types of the programs so far. The newest program's declaration of a type counts.
        program: the newest program, or None before the first upgrade.

    Args:
        types: the types of the first program.
    """

    def __init__(self, injector: Injector, server: Server, processes: Sequence[Process], types: Registry) -> None:
        self._injector = injector
        self._server = server
        self._processes = processes
        self.types = types
        self.program: App | MakeApp | None = None
        # The processes that still run an older program than the newest one.
        self._older: set[Process] = set()
        self.clocks = ExitStack()

    async def upgrade(self, program: App | MakeApp, make_app: MakeApp, chosen: Sequence[Process]) -> None:
        """End the chosen processes together, and start them again with a program.

        Args:
            make_app: returns the program for a life of a process.
        """
        self.clocks.enter_context(own_clocks(program))
        if self.program is not program:
            self._older = set(self._processes)
        self._older -= set(chosen)
        self.program = program
        async with trio.open_nursery() as nursery:
            for process in chosen:
                self._injector.trace.upgrades.append((process.name, len(self._injector.trace.steps)))
                self._injector.note(f"{process.name} ends, to be upgraded")
                nursery.start_soon(process.end, make_app, _GRACE)
        new = make_app(chosen[0]).registry
        self.types = merged(new, self.types)
        # As long as an older program runs, the server knows its types, too.
        await self._server.serve_types(self.types if self._older else new)
        for process in chosen:
            process.begin()
        for process in chosen:
            await process.wait_running()

    def release(self) -> None:
        """Start the processes that have waited for an upgrade that never came."""
        for process in self._processes:
            process.begin()


def merged(new: Registry, old: Registry | None) -> Registry:
    """Return the types of two programs. The declarations and the converters of the new one count."""
    missing = [] if old is None else [each for each in old if new.find(each.name) is None]
    if not missing:
        return new
    both = Registry()
    for each in (*new, *missing):
        if both.find(each.name) is None:
            both.register(each)
    both.add_declared(new)
    return both
