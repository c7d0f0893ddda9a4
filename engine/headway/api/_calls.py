"""What a caller learns of a call that has failed.

A channel raises the public error of a status that is only given before the call had any effect, and one of those below
for any other. Each error that a channel raises says of which call: `call_of` tells it from an error of the caller's own
code in the same block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from headway.api._refusals import Code, DetailedPrecondition, Reason, error_of, row_of
from headway.errors import (
    Closed,
    CommitRefused,
    FailedPrecondition,
    HeadwayError,
    NotHeadway,
    RateLimited,
    RemoteError,
    Unavailable,
)
from headway.resource import AnyMessage

E = TypeVar("E", bound=HeadwayError)


class FailedCall(NamedTuple):
    """How a call has failed.

    Attributes:
        code: its status.
        message: the message of the status, or its name.
        not_begun: True if no server has begun to handle the call.
        obstacles: the obstacles at the addresses of the channel, if none can be reached.
    """

    code: Code
    message: str
    not_begun: bool = False
    obstacles: object = None


def call_of(error: BaseException) -> FailedCall | None:
    """Return how the call has failed that has raised this error, or None if no call has."""
    found: FailedCall | None = getattr(error, "failed_call", None)
    return found


def of_call(error: E, call: FailedCall | None = None) -> E:
    """Return the error as one of a call. Without ``call``, its status is that of the table."""
    if call is None:
        row = row_of(error)
        call = FailedCall(Code.UNKNOWN if row is None else row.code, str(error))
    error.failed_call = call
    return error


class _OfStatus(HeadwayError):
    def __init__(self, code: Code, message: str) -> None:
        super().__init__(code, message)
        of_call(self, FailedCall(code, str(self), isinstance(self, NotBegun)))

    def __str__(self) -> str:
        return str(self.args[1]) or Code(self.args[0]).name


class Interrupted(_OfStatus, RemoteError):
    """A call has failed, and may have taken effect: its status says no more."""


class NotBegun(_OfStatus, Unavailable):
    """A call has failed before it had any effect."""


class NotServed(NotHeadway):
    """The server does not have the method that was called."""


FAILED = (Interrupted, NotBegun, NotServed, DetailedPrecondition)
"""The errors of a failed call that a client turns into public ones. All others are public already."""


def code_of(error: BaseException) -> Code | None:
    """Return the status of the call that has raised this error, or None if no call has."""
    call = call_of(error)
    return None if call is None else call.code


def answer_of(code: Code, reason: Reason | None, message: str, details: Sequence[AnyMessage] = ()) -> HeadwayError:
    """Return what a caller sees of a service's status.

    It is `Interrupted` unless the call certainly had no effect: the service gives the status only before it has done
    anything, such as INVALID_ARGUMENT, or the reason says that nothing was written, as after a failed hook.
    """
    if reason is Reason.NOTHING_WRITTEN:
        return NotBegun(code, message)
    if code == Code.UNIMPLEMENTED:
        return not_served("the server", message)
    known = error_of(code, reason)
    if known is FailedPrecondition and details and reason is None:
        return DetailedPrecondition(message, details)
    return Interrupted(code, message) if known is None else known(message)


def closed() -> Closed:
    """Return the error of a call on a channel whose block has ended."""
    error = Closed(
        "the block that opened this client has ended: use the client inside `async with headway.open_engine(...)` or "
        "`async with headway.connect(...)`"
    )
    return of_call(error, FailedCall(Code.UNAVAILABLE, "the block that opened this channel has ended", True))


def not_served(where: str, message: str) -> NotServed:
    """Return the error of a server that does not have a method."""
    path = message.partition("Method not found: ")[2]
    if path.startswith("/") and not path.startswith(("/headway.", "/hashicorp.", "/grpc.")):
        return NotServed(f"{where} does not serve {path}: open the engine with the extension that has this service")
    return NotServed(
        f"{where} is not a Headway engine, or is behind a proxy that doesn't forward the method: it answered "
        f"{message!r}; give the address of a Headway engine"
    )


def answered(error: Exception) -> HeadwayError | None:
    """Return the error of a service as a caller in this process sees it, which is as over a network.

    It is None for an error that a service may not raise.
    """
    row = row_of(error)
    if row is None:
        return None
    message = str(error) or row.code.name
    if isinstance(error, CommitRefused):
        # Another object for each caller, because raising adds a traceback to it.
        found: HeadwayError = type(error)(*error.args)
    elif isinstance(error, RateLimited):
        found = RateLimited(message, error.retry_after)
    else:
        details = error.details if isinstance(error, DetailedPrecondition) else ()
        found = answer_of(row.code, row.reason, message, details)
    return of_call(found, FailedCall(row.code, message, isinstance(error, RateLimited)))


def described(error: HeadwayError) -> str:
    """Return the status of a failed call and its message, as one text."""
    call = call_of(error)
    return str(error) if call is None else f"{call.code.name}: {call.message}"
