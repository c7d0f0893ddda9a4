"""Errors that several services raise."""

from __future__ import annotations

from headway.api import NothingWritten, ProgramFailed
from headway.errors import HeadwayError, StoreUnusable, Unavailable, WriteRejected


def authorizer_failed(cause: BaseException) -> ProgramFailed:
    """Return an error for an authorizer that has raised ``cause``, before the store was changed."""
    return ProgramFailed("the authorizer failed", cause)


def nothing_written(error: Unavailable | StoreUnusable) -> HeadwayError:
    """Return the error of a write whose commit, or the read before it, has failed with this error."""
    return error if isinstance(error, WriteRejected) else NothingWritten(str(error))
