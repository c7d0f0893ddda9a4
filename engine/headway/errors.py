"""Every public error, sorted by whose fault it is and what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class HeadwayError(Exception):
    """The base of every error that Headway raises on purpose."""


# --- The caller's: the call or the declaration has to change -----------------


class CallerError(HeadwayError):
    """What was asked can't be done as asked; asking again changes nothing."""


class DeclarationError(CallerError, TypeError):
    """A type, message, mapper or controller was declared wrongly. The message shows the right form."""


class NotOnTrio(CallerError, RuntimeError):
    """Headway was called outside of Trio, such as under ``asyncio.run``. Nothing was opened, read or written."""


class PayloadError(CallerError, ValueError):
    """Bytes are not the message that they should be, or a message holds what can't be put into bytes."""


class ConversionFailed(PayloadError):
    """A resource is stored in a version of its kind that could not be converted to the one that was asked for.

    The message names the resource and both versions. The event of the same name, on the server, has the reason.
    """


class InvalidArgument(CallerError, ValueError):
    """A field of a request is missing or wrong; the message names the field, the value and what would be right."""


class Problem(NamedTuple):
    """One thing that is wrong with a manifest, and where. Lines and columns count from 1."""

    source: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        where = f"{self.source}:{self.line}:{self.column}"
        return f"{where}: {self.path}: {self.message}" if self.path else f"{where}: {self.message}"


class ManifestError(CallerError, ValueError):
    """A manifest is not what it should be; ``problems`` are all that is wrong with it, and ``str()`` one a line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))

    def __reduce__(self) -> tuple[type[ManifestError], tuple[tuple[Problem, ...]]]:
        # An exception is rebuilt from its args, which here are the text and not the problems.
        return type(self), (self.problems,)


class SchemaProblem(NamedTuple):
    """One difference by which a program would misread what is stored.

    Attributes:
        type: the name of the resource type, such as "staff.v1.Team".
        field: the path of the field in the payload, such as "lead.name"; empty for the type itself.
        number: the field's number, or 0.
        problem: what was expected, and what the program has.
        right: what the program should have.
        missing: True for a field that the program lacks, which it would not misread by itself.
    """

    type: str
    field: str
    number: int
    problem: str
    right: str
    missing: bool = False

    def __str__(self) -> str:
        where = f"{self.type}.{self.field} (field {self.number})" if self.field else self.type
        return f"{where}: {self.problem}; {self.right}"


class SchemaMismatch(CallerError, ValueError):
    """A program would misread what is stored. ``problems`` are all differences, and ``str()`` one a line."""

    def __init__(self, where: str, problems: Iterable[SchemaProblem]) -> None:
        self.where = where
        self.problems = tuple(problems)
        super().__init__("\n".join([f"{where} has other schemas than this program:", *map(str, self.problems)]))

    def __reduce__(self) -> tuple[type[SchemaMismatch], tuple[str, tuple[SchemaProblem, ...]]]:
        # An exception is rebuilt from its args, which here are the text and not the problems.
        return type(self), (self.where, self.problems)


class NotFound(CallerError, LookupError):
    """There is no such resource (or it has another uid than the one asked for)."""


class Conflict(CallerError):
    """The stored version is not the one given: read again, decide again, write again."""


class AlreadyExists(Conflict):
    """The name of a resource that was to be created is taken; nothing was written."""


class FailedPrecondition(CallerError):
    """The stored resource is another incarnation (uid), or in a state that forbids the call."""


class PermissionDenied(CallerError):
    """The caller may not do this."""


class NotHeadway(CallerError):
    """What answers at the address is not a Headway engine: a web server, another gRPC server, or TLS on one side alone.

    The message says which. Nothing was done, and asking again changes nothing: give the address of a Headway engine.
    """


class Closed(CallerError):
    """An engine or a client was used after the block that opened it had ended. Nothing was read or written."""


class TooLarge(CallerError, ValueError):
    """A request is larger than the server takes; it was not sent, or not read, and nothing of it has been done.

    Attributes:
        size: bytes of the request.
        limit: bytes that the server takes.
    """

    def __init__(self, message: str, size: int, limit: int) -> None:
        super().__init__(message, size, limit)
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        return str(self.args[0])


class Fenced(CallerError):
    """A write came from a controller's run that has been superseded; nothing was written. Not to be retried."""


class UnknownTerm(Fenced):
    """A fence bears a term that the store never granted to its controller and member; nothing was written."""


class LeaseLost(CallerError):
    """A lease is not held any more in the term named: it was released, has run out, or is another's."""


class NotPrimed(CallerError):
    """A cache was read before it was primed, or after its run had ended; or a view after its block had."""


class NotWatched(CallerError, LookupError):
    """A cache was asked for a type, an index or a query that its controller doesn't declare."""


class IsolationBroken(CallerError):
    """A function changed what it was given to read. Found by ``open_engine(..., check_isolation=True)`` alone."""


class NotDeclared(CallerError, LookupError):
    """A controller's client read or wrote a type that the controller's ``reads`` or ``writes`` don't have."""


class IndexIncomplete(CallerError):
    """An index function raised for some resources, so a read of that index can't be complete."""


# --- The other side's: try again, or ask an operator -------------------------


class RemoteError(HeadwayError):
    """The store or the way to it failed; the call may be tried again."""


class Unavailable(RemoteError):
    """The call failed before it could have any effect."""


class OutcomeUnknown(RemoteError):
    """A write may or may not have happened. A controller's run settles it by itself before it reconciles again."""


class HistoryCompacted(RemoteError):
    """A watch cannot go on from the position asked for: start from a snapshot.

    The store no longer has the changes since then, or a converter has been declared or removed.
    """


class StoreChanged(RemoteError):
    """The store is another one (another store id) than the one that this data came from."""


class StoreRolledBack(RemoteError):
    """The store answers with revisions below those it has given before, under the same store id.

    No controller runs until `Engine.accept_store` is called or the store has another id.
    """


class PrimingStalled(RemoteError):
    """A type that a controller's run needs made no progress for too long; the run is started again."""


class StoreUnusable(RemoteError):
    """A store's file can't be used: it is held by another process, foreign, corrupt or newer than this program."""


class WriteRejected(StoreUnusable, Unavailable):
    """The store's disk did not take a commit: it is full, say, or another program has the file locked.

    Nothing was written. Reads and watches go on, and so do writes, without a restart, once it takes them again.
    """


# --- The reconciler's way of saying things -----------------------------------


class PermanentFailure(HeadwayError):
    """Raised by a reconciler: retrying is useless until the resource changes."""


class ReconcileTimeout(HeadwayError):
    """A reconcile took longer than its controller's deadline and was cancelled; the key is tried again."""


class InvalidResult(HeadwayError, TypeError):
    """A reconciler returned something that is no result; the key is tried again."""


class StrayCancelled(HeadwayError):
    """A function of the program's raised a `trio.Cancelled`, and nothing around it was canceled.

    ``__cause__`` is the Cancelled. Its cancel scope has ended, so no block would catch it; it is the failure of the
    function that raised it.
    """


# --- Ours ---------------------------------------------------------------------


class EngineBug(HeadwayError):
    """This should never happen: an invariant of Headway's own is broken. Please report it."""
