"""The sources of one run, which enqueue keys of the managed type."""

from __future__ import annotations

import trio

from headway.base import guarded, repr_text
from headway.controller import Definition, Enqueue
from headway.errors import Closed, InvalidArgument, NotOnTrio
from headway.mapper import id_problem, ids_of
from headway.queue import WaitingQueue
from headway.reconcile import Find, Reason, Runtime, SecretReads
from headway.resource import Key, ResourceId
from headway.run._mapping import RunMapping


class RunSources:
    """The sources of one run."""

    def __init__(
        self,
        definition: Definition,
        runtime: Runtime,
        find: Find,
        mapping: RunMapping,
        queue: WaitingQueue[Key, Reason],
    ) -> None:
        self._definition = definition
        self._runtime = runtime
        self._find = find
        self._mapping = mapping
        self._queue = queue

    async def call(self, name: str) -> None:
        """Call a source, whose error ends the run."""
        await guarded(self._call, name)

    async def _call(self, name: str) -> None:
        # Its error must not show a secret that the source has read.
        with SecretReads(self._find, self._definition.types).noted():
            await self._definition.sources[name](self._runtime, self._enqueue(f"source {name}"))

    def _enqueue(self, what: str) -> Enqueue:
        reason, manages = Reason(what), self._definition.manages

        def enqueue(id: ResourceId) -> None:
            given: object = id
            named = str(given) if isinstance(given, ResourceId) else repr_text(given)
            if not trio.lowlevel.in_trio_run():
                raise NotOnTrio(
                    f"{what} enqueued {named} from another thread than Trio's: call "
                    "trio.from_thread.run_sync(enqueue, id) there"
                )
            if self._queue.closed:
                # The queue would ignore the key, and the change would be lost.
                raise Closed(
                    f"{what} enqueued {named} after its run of {self._definition.full_name} had ended: the next run "
                    "calls the source again, with another enqueue"
                )
            if problem := id_problem(id, manages):
                raise InvalidArgument(
                    f"{what} enqueued {problem}; enqueue ids of {manages.name}, as from TYPE.id(name)"
                )
            for key in ids_of([id], manages)[0]:
                self._mapping.mapper.add(key, reason)

        return enqueue
