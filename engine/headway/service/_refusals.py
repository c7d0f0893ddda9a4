"""The error for an authorizer that fails."""

from __future__ import annotations

from headway.api import ProgramFailed


def authorizer_failed(cause: BaseException) -> ProgramFailed:
    """Return an error for an authorizer that has raised ``cause``, before the store was changed."""
    return ProgramFailed("the authorizer failed", cause)
