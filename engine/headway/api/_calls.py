"""What a caller learns of a call that has failed.

A channel raises the public error of a status that is only given before the call had any effect, and one of those below
for any other. Each error that a channel raises says of which call: `call_of` tells it from an error of the caller's own
code in the same block.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from headway.api._refusals import Code, DetailedPrecondition, row_of
from headway.errors import HeadwayError, NotHeadway, RemoteError, Unavailable

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


def described(error: HeadwayError) -> str:
    """Return the status of a failed call and its message, as one text."""
    call = call_of(error)
    return str(error) if call is None else f"{call.code.name}: {call.message}"
