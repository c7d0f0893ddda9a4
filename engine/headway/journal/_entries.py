"""The entries of the journal. No I/O.

Times are on the clock of the journal, in seconds. This module cannot import the packages that feed it, so some types
are `Any` here: a ``type`` is a `TypeName`, and ``writes`` holds `OwnWrite` values.

An entry never holds an exception, because its traceback would keep many objects alive. It has the text instead.
"""

from __future__ import annotations

from typing import Any, NamedTuple

ENTRY = 1400
"""The memory that counts for an entry, in bytes, without what it lists."""
PART = 250
"""The memory that counts for each field of what an entry lists: four for a reason, two for a read, one for a write."""

EntryKey = tuple[str, str, str]


class Ran(NamedTuple):
    """A reconcile that ended at ``at``.

    Attributes:
        outcome: done, requeue, failed, permanent or slowed.
        waited: the time for which the key was ready before.
        reasons: the reasons, each as (what, type, key, revision).
        reads: what it read, each as (type, key or a text that says how); only the first 16. A key may
            have a fourth part, the version that was read.
        writes: its acknowledged writes; only the first 16.
        error: the class and message of its error, or an empty text.
        traceback: the program's own frames of the error.
        retry_after: the delay of the next attempt, or None.
    """

    at: float
    key: EntryKey
    outcome: str
    seconds: float
    waited: float
    attempt: int
    reasons: tuple[Any, ...]
    reads: tuple[Any, ...] = ()
    writes: tuple[Any, ...] = ()
    error: str = ""
    traceback: str = ""
    retry_after: float | None = None


class TurnedAway(NamedTuple):
    """A change that a predicate turned away at ``at``, so that no key was enqueued for it."""

    at: float
    type: Any
    key: EntryKey
    revision: int
    predicate: str


class Written(NamedTuple):
    """A write that was committed at ``at``, as ``revision``.

    Attributes:
        verb: written, status KEY written, or deleted.
        writer: the controller and its process, or the token; empty for a program within the engine's process.
    """

    at: float
    revision: int
    type: Any
    key: EntryKey
    verb: str
    writer: str


class Happened(NamedTuple):
    """An event that was reported at ``at``.

    Attributes:
        what: the name of its class.
        fields: its fields, without exceptions: ``error`` is a text, and ``traceback`` the program's own frames.
    """

    at: float
    what: str
    fields: dict[str, Any]

    def size(self) -> int:
        """Return the size of the entry within the limit of memory, in bytes."""
        return ENTRY + 4 * sum(len(each) for each in self.fields.values() if isinstance(each, str))


Entry = Ran | TurnedAway | Written | Happened
