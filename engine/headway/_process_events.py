"""The events of a whole process: its store, its event loop and its shutdown. Exported by `headway.events`. No I/O."""

from __future__ import annotations

from headway._records import Record


class StoreFailed(Record):
    """The store cannot be used. ``problem`` is ``unusable``, ``away`` or ``rolled_back``, as in `StoreProblem`.

    The health service reports NOT_SERVING.
    """

    problem: str
    error: BaseException


class StoreRecovered(Record):
    """A store can be used again, ``seconds`` after the first `StoreFailed`."""

    problem: str
    seconds: float


class LoopBlocked(Record):
    """A ``task`` has blocked Trio's event loop for ``seconds``. Nothing else in the process runs until it awaits.

    ``stack`` shows the task's position. ``controller`` is the controller that it belongs to ("" if none), and ``key``
    is the key that it reconciles or maps (None if neither). A lasting block is reported again each time its duration
    has doubled. Another block is reported at the earliest 10 seconds later. ``suppressed`` counts the blocks since the
    last report. Reported from another thread.
    """

    task: str
    controller: str
    key: tuple[str, str, str] | None
    stack: str
    seconds: float
    suppressed: int = 0


class ShutdownBlocked(Record):
    """A task is still running ``seconds`` after its engine began to shut down. ``stack`` shows its position.

    Reported from another thread, because Trio's event loop may be blocked.
    """

    task: str
    stack: str
    seconds: float
