"""The events of a process as a whole: its store, its event loop and its end. `headway.events` exports them. Pure."""

from __future__ import annotations

from headway._records import Record


class StoreFailed(Record):
    """The store can't be used: it is ``unusable``, ``away`` or ``rolled_back`` (`StoreProblem`). Health says
    NOT_SERVING.
    """

    problem: str
    error: BaseException


class StoreRecovered(Record):
    """A store that had a problem can be used again, ``seconds`` after the first `StoreFailed`."""

    problem: str
    seconds: float


class LoopBlocked(Record):
    """A ``task`` has held Trio's loop for ``seconds``: nothing else in the process runs until it awaits something.

    ``stack`` shows where it is, ``controller`` whose task it is ("": no controller's), ``key`` what that reconciles or
    maps (None: neither). A block that lasts is reported again after twice the time, and another block not before 10
    seconds. ``suppressed`` is the number of blocks since the last report. It is reported from another thread.
    """

    task: str
    controller: str
    key: tuple[str, str, str] | None
    stack: str
    seconds: float
    suppressed: int = 0


class ShutdownBlocked(Record):
    """A task is still there ``seconds`` after its engine was told to end, and this is where it stands.

    Trio's loop may be what stands still, so this is reported from another thread.
    """

    task: str
    stack: str
    seconds: float
