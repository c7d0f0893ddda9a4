"""Every public error, grouped by its cause and by what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple


class HeadwayError(Exception):
    """The base of every error that Headway raises on purpose."""

    failed_call: Any = None
    """How the call has failed that has raised it, for Headway's own code (`headway.api.call_of`)."""


# --- Errors of the caller: the call or the declaration has to change ----------


class CallerError(HeadwayError):
    """The request is invalid or not allowed, so retrying it does not help."""


class DeclarationError(CallerError, TypeError):
    """A type, message, mapper or controller is declared incorrectly. The message shows the correct form."""


class NotOnTrio(CallerError, RuntimeError):
    """Headway was called outside of Trio, such as under ``asyncio.run``. Nothing was opened, read or written."""


class WrongTrioRun(CallerError, RuntimeError):
    """An engine, a client or a cache was used in another `trio.run` than the one that opened it.

    This is usually the run of another thread. Nothing was read or written. The message shows the call to make instead.
    """


class PayloadError(CallerError, ValueError):
    """Bytes do not decode as the expected message, or a message holds a value that cannot be encoded."""


class ConversionFailed(PayloadError):
    """A resource could not be converted from its stored version to the requested one.

    The message names the resource and both versions. The reason is in the server's event of the same name. A deleted
    resource from before its type's schema was replaced by an incompatible one cannot be read either.
    """


class InvalidArgument(CallerError, ValueError):
    """A field of a request is missing or invalid. The message names the field, the value and what is valid."""


class Problem(NamedTuple):
    """A problem in a manifest, with its position. Lines and columns count from 1."""

    source: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        where = f"{self.source}:{self.line}:{self.column}"
        return f"{where}: {self.path}: {self.message}" if self.path else f"{where}: {self.message}"


class ManifestError(CallerError, ValueError):
    """A manifest is invalid.

    ``str()`` has one problem on each line.

    Attributes:
        problems: the problems, in the order of the text. Of one text, the first 100 are listed.
        more: the number of further problems, which are not listed.
    """

    def __init__(self, problems: Iterable[Problem], more: int = 0) -> None:
        self.problems = tuple(problems)
        self.more = more
        rest = [f"and {more} more problems"] if more else []
        super().__init__("\n".join([*map(str, self.problems), *rest]))

    def __reduce__(self) -> tuple[type[ManifestError], tuple[tuple[Problem, ...], int]]:
        # An exception is rebuilt from its args, which here hold the text instead of the problems.
        return type(self), (self.problems, self.more)


class SchemaProblem(NamedTuple):
    """A difference between schemas that would make a program misread stored data.

    Attributes:
        type: the name of the resource type, such as "staff.v1.Team", or "topic rates" for a topic.
        field: the path of the field in the payload, such as "lead.name"; empty for the type or topic itself.
        number: the field's number, or 0.
        problem: what was expected, and what the program has.
        right: what the program should have.
        missing: True for a field that the program lacks. A missing field alone does not cause a misreading.
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
    """This program would misread stored data.

    ``problems`` lists every difference; ``str()`` has one problem on each line.
    """

    def __init__(self, where: str, problems: Iterable[SchemaProblem]) -> None:
        self.where = where
        self.problems = tuple(problems)
        super().__init__("\n".join([f"{where} has other schemas than this program:", *map(str, self.problems)]))

    def __reduce__(self) -> tuple[type[SchemaMismatch], tuple[str, tuple[SchemaProblem, ...]]]:
        # An exception is rebuilt from its args, which here hold the text instead of the problems.
        return type(self), (self.where, self.problems)


class NotFound(CallerError, LookupError):
    """The resource does not exist, or its uid is not the one requested."""


class Conflict(CallerError):
    """The stored version is not the version given. Read the resource again, decide again, then write again."""


class AlreadyExists(Conflict):
    """A resource of this name already exists. Nothing was written."""


class FieldConflict(Conflict):
    """Another manager owns a field that an apply of fields would change. Nothing was written.

    Attributes:
        conflicts: pairs of the name of a manager and the path of a field that it owns.
    """

    def __init__(self, message: str, conflicts: Iterable[tuple[str, str]]) -> None:
        self.conflicts = tuple(conflicts)
        super().__init__(message, self.conflicts)

    def __str__(self) -> str:
        return str(self.args[0])


class FailedPrecondition(CallerError):
    """The stored resource is in a state that forbids the call, or is another incarnation."""


class WrongUid(FailedPrecondition):
    """The stored resource has another uid than the one given: it is another incarnation of the name."""


class PartitionReserved(FailedPrecondition):
    """The partition is reserved for copies of resources of another engine. Only Headway itself writes there."""


class PermissionDenied(CallerError):
    """The caller does not have permission for this call."""


class Unauthenticated(PermissionDenied):
    """The caller's token is missing, invalid or expired, or the session has ended."""


class NotHeadway(CallerError):
    """The server at this address is not a Headway engine.

    It is a web server or another gRPC server, or only one side uses TLS; the message says which. Nothing was done, and
    retrying does not help: use the address of a Headway engine.
    """


class Closed(CallerError):
    """An engine, a client or a block of a reconcile was used outside of its block. Nothing was read or written."""


class TooLarge(CallerError, ValueError):
    """A request exceeds the server's size limit. It had no effect.

    Attributes:
        size: the size of the request, in bytes.
        limit: the largest size that the server accepts, in bytes.
    """

    def __init__(self, message: str, size: int, limit: int) -> None:
        super().__init__(message, size, limit)
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        return str(self.args[0])


class CommitRefused(CallerError):
    """A rule of the store, such as a `QuotaExceeded`, has refused a write. Nothing was written.

    A subclass takes its arguments by position, and passes all of them on. A client in another process gets this class.

    Attributes:
        reason: the name of the reason, as over gRPC and HTTP.
    """

    reason = "COMMIT_REFUSED"


class QuotaExceeded(CommitRefused):
    """A write has no room in a quota of its partition or namespace. Nothing was written.

    Repeating the write does not help until something there is deleted or made smaller, or the quota is raised.

    Attributes:
        quota: the name of the quota, a resource of type ``tenancy.v1.Quota``.
        what: what it limits: ``"resources"`` or ``"bytes"``.
        limit: its limit.
        use: what was used when the write was refused.
        adds: what the write would have added.
    """

    reason = "QUOTA_EXCEEDED"

    def __init__(self, message: str, quota: str, what: str, limit: int, use: int, adds: int) -> None:
        super().__init__(message, quota, what, limit, use, adds)
        self.quota, self.what = quota, what
        self.limit, self.use, self.adds = limit, use, adds

    def __str__(self) -> str:
        return str(self.args[0])


class Fenced(CallerError):
    """A write came from a run of a controller that a later run has superseded. Nothing was written. Do not retry it."""


class UnknownTerm(Fenced):
    """A fence names a term that the store never granted to its controller and member. Nothing was written."""


class LeaseLost(CallerError):
    """A lease is no longer held in the given term: it was released, it expired, or another holder has it."""


class NotPrimed(CallerError):
    """A cache was read before it was primed or after its end, a view after its end, or a handle before its value."""


class NotWatched(CallerError, LookupError):
    """A type, an index or a query was read from a cache whose controller does not declare it."""


class IsolationBroken(CallerError):
    """A function mutated an argument that it may only read. Detected only in tests (`headway.testing`)."""


class NotDeclared(CallerError, LookupError):
    """A controller's client read or wrote a type that is missing from the controller's ``reads`` or ``writes``."""


class IndexIncomplete(CallerError):
    """A read of an index would be incomplete, because the index function raised for some resources."""


# --- Errors of the other side: try again, or ask an operator ------------------


class ControllerStopped(CallerError):
    """`wait_idle` would wait until a controller may reconcile again, because the controller has pending work."""


class RemoteError(HeadwayError):
    """The store failed, or the connection to it did. The call may be retried."""


class Unavailable(RemoteError):
    """The call failed before it could have any effect."""


class RateLimited(Unavailable):
    """A limit of the server has refused the call, and would still refuse it at the call's timeout. It had no effect.

    A client of Headway waits and repeats a refused call by itself, for as long as the call may take.

    Attributes:
        retry_after: how long, in seconds, the server asks to wait before the call is repeated.
    """

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message, retry_after)
        self.retry_after = retry_after

    def __str__(self) -> str:
        return str(self.args[0])


class OutcomeUnknown(RemoteError):
    """A write may or may not have been stored. A controller's run resolves this before it reconciles again."""


class HistoryCompacted(RemoteError):
    """A watch cannot resume from the requested position. Start again from a snapshot.

    The store has compacted the changes after that position, or a converter has been declared or removed.
    """


class StoreChanged(RemoteError):
    """The store is not the one that this data came from: its store id differs."""


class StoreRolledBack(RemoteError):
    """The store has been rolled back: under the same store id, it answers with lower revisions than before.

    No controller runs until `Engine.accept_store` is called or the store has another id.
    """

    def __str__(self) -> str:
        return (
            f"{super().__str__()}. If the store is as it should be, restart this process, or call accept_store() of "
            "its engine"
        )


class PrimingStalled(RemoteError):
    """Priming a type made no progress for too long. The controller's run is restarted."""


class StoreUnusable(RemoteError):
    """A store's file cannot be used.

    For example, another process has it open, or it is foreign, corrupt or newer than this program.
    """


class WriteRejected(StoreUnusable, Unavailable):
    """The store's disk rejected a commit. It may be full, or another program may have locked the file.

    Nothing was written. Reads and watches continue. Writes succeed again, without a restart, once the disk accepts
    them.
    """


# --- Errors that a reconciler raises or causes --------------------------------


class PermanentFailure(HeadwayError):
    """Raise this in a reconciler if a retry cannot succeed until something changes.

    If several tasks of the reconcile fail, the key is given up only if each of them has raised this.
    """


class ReconcileTimeout(HeadwayError):
    """A reconcile exceeded its controller's deadline and was canceled. The key is retried."""


class InvalidResult(HeadwayError, TypeError):
    """A reconciler, a daemon, a timer or the function of a `headway.notify.BlockingQuery` returned an invalid value.

    The call is retried.
    """


class StrayCancelled(HeadwayError):
    """A function of the program raised `trio.Cancelled` although no scope around it was canceled.

    ``__cause__`` is the Cancelled. Its cancel scope has already ended, so no block would catch it. It therefore counts
    as a failure of the function that raised it.
    """


# --- Errors of Headway itself -------------------------------------------------


class EngineBug(HeadwayError):
    """An invariant of Headway is broken. This should never happen; please report it."""
