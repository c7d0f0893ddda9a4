"""Faults in the streams of a type, for all processes, including ones that start later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import trio

from headway.resource import Kind
from headway.testing._scripted_channel import ScriptedChannel
from headway.testing.simulation import faults
from headway.testing.simulation.world._injector import Injector
from headway.testing.simulation.world._link import Link
from headway.testing.simulation.world._process import Process

_LONG = 60.0
"""The number of seconds that a fault without a length of its own lasts."""
_NO_CHANGE = 1200.0
"""The number of seconds after which a merged change is delivered alone. Users may wait for its result themselves."""


class Streams:
    """Applies the faults of a plan to the scripts of the processes' links."""

    def __init__(self, injector: Injector, processes: Sequence[Process], changes: Callable[[], int]) -> None:
        self._injector = injector
        # Returns the number of changes that users have made.
        self._changes = changes
        self._processes = processes
        # The number of faults that hold back each kind: when one ends, another may still last.
        self._held: Counter[Kind] = Counter()

    def harm(self, kind: Kind, fault: faults.ChangeFault) -> None:
        """Apply a fault, now that its change has been committed."""
        if isinstance(fault, faults.Repeat):
            for script in self._scripts():
                script.kind_script(kind).duplicates += 1
        elif isinstance(fault, faults.Drop):
            self._drop(kind)
        elif isinstance(fault, faults.HistoryLost):
            self._lose(kind)
        elif isinstance(fault, faults.Missed):
            for process in self._processes:
                process.history_gone = True
                process.kill()
        elif isinstance(fault, faults.Stall):
            self._hold(kind)
            self._injector.after(fault.seconds, lambda: self._release(kind))
        elif isinstance(fault, faults.Hide):
            self._injector.when_at(fault.until, self._show_at_last(kind, _LONG))
        elif isinstance(fault, faults.Merged):
            # A change of a user, which is being made, is delivered together with the users' next one.
            self._injector.after_changes(self._changes() + 2, self._show_at_last(kind, _NO_CHANGE))

    def begin(self, process: Process, link: Link) -> None:
        """Apply the faults in force to a process that begins a life."""
        script = link.script
        for kind in +self._held:
            script.kind_script(kind).held = True
        kinds = [type.kind for type in process.app.registry]
        if process.history_gone:
            link.readers.lose_history(kinds, self._last_revision())
            for kind in kinds:
                script.kind_script(kind).resumes_refused += 1
        behind = process.behind
        process.behind, process.history_gone = None, False
        if behind is not None:
            for kind in kinds:
                script.kind_script(kind).old_snapshots.append(behind)
                script.kind_script(kind).held = True

            def catch_up() -> None:
                for kind in kinds:
                    if not self._held[kind]:
                        script.kind_script(kind).release()

            self._injector.after(_LONG, catch_up)

    def _show_at_last(self, kind: Kind, seconds: float) -> Callable[[], None]:
        """Hold back a kind until the function is called, or for some seconds. Then its streams have a snapshot."""
        injector, over = self._injector, False
        self._hold(kind)
        injector.begin_pending()

        def show() -> None:
            nonlocal over
            if not over:
                over = True
                injector.end_pending()
                self._lose(kind)
                self._release(kind)

        async def at_last() -> None:
            await trio.sleep(seconds)
            show()

        injector.nursery.start_soon(at_last)
        return show

    def _drop(self, kind: Kind) -> None:
        for script in self._scripts():
            script.kind_script(kind).drop()

    def _lose(self, kind: Kind) -> None:
        for process in self._processes:
            if process.life:
                of_kind = process.link.script.kind_script(kind)
                if of_kind.open:
                    of_kind.resumes_refused += 1
                of_kind.drop()
                process.link.readers.lose_history([kind], self._last_revision())

    def _last_revision(self) -> int:
        commits = self._injector.trace.commits
        return commits[-1].revision if commits else 0

    def _hold(self, kind: Kind) -> None:
        self._held[kind] += 1
        for script in self._scripts():
            script.kind_script(kind).held = True

    def _release(self, kind: Kind) -> None:
        self._held[kind] -= 1
        if self._held[kind]:
            return
        for script in self._scripts():
            script.kind_script(kind).release()

    def _scripts(self) -> list[ScriptedChannel]:
        return [process.link.script for process in self._processes if process.life]
