"""The reasons why an open store cannot be used."""

from __future__ import annotations

import enum

from headway.errors import HeadwayError
from headway.storage._backend import Backend
from headway.storage._optional import prober

_NOTHING = ("internal", "Nothing"), ("", "", "nothing")


class StoreProblem(enum.Enum):
    """A reason why a store can't be used. The value is a sentence that names neither a path nor an address."""

    UNUSABLE = "the store can't be used until it is opened again"
    AWAY = "the store does not answer, or accepts no writes"
    ROLLED_BACK = "the store was rolled back: an operator has to accept it"

    @property
    def mended_by_reopening(self) -> bool:
        """True if restarting the process may help. It never helps with other problems, and it may lose information."""
        return self is StoreProblem.UNUSABLE


async def find_problem(backend: Backend) -> tuple[StoreProblem, HeadwayError] | None:
    """Return the problem of an open store, and the error that shows it. Return None if it can be read and written."""
    try:
        backend.position  # noqa: B018  # raises if the store rejects every call
        probe = prober(backend)
        if probe is None:
            await backend.read(*_NOTHING)
        else:
            await probe()
    except HeadwayError as error:
        return (StoreProblem.UNUSABLE if _refuses_everything(backend) else StoreProblem.AWAY), error
    return None


def _refuses_everything(backend: Backend) -> bool:
    try:
        backend.position  # noqa: B018
    except HeadwayError:
        return True
    return False
