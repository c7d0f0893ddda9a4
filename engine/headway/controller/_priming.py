"""The priming of one type: a wait that lasts while there is progress, and reports of failing indexes."""

from __future__ import annotations

import trio

from headway._bounded_report import BoundedReport
from headway.cache import Informer, OnFailure
from headway.errors import PrimingStalled
from headway.events import IndexFailed
from headway.resource import Key, TypeName


async def wait_primed(informer: Informer, revision: int, stall_limit: float) -> None:
    """Wait until a type is primed up to a revision.

    A large type may take as long as it needs. Raises PrimingStalled only if nothing arrives for ``stall_limit``
    seconds.
    """
    while True:
        received = informer.received
        with trio.move_on_after(stall_limit):
            await informer.wait_complete(revision)
            return
        if informer.received == received:
            why = f"; {informer.cut_off[0]}" if informer.cut_off else ""
            raise PrimingStalled(
                f"priming {informer.type.name} stalled: nothing was received for {stall_limit} s; "
                f"{informer.resources} resources have arrived, and "
                f"its revision is {informer.store.frontier} of {revision}{why}"
            )


def report_indexes(bounded: BoundedReport, controller: str, type: TypeName) -> OnFailure:
    """Return a function that reports failures of a controller's indexes on a type."""

    def report(index: str, key: Key, error: BaseException) -> None:
        bounded(IndexFailed, of=(type, index), controller=controller, index=index, type=type, key=key, error=error)

    return report
