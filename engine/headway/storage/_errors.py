"""Why a store refuses."""

from __future__ import annotations

from headway.errors import HeadwayError


class StorageError(HeadwayError):
    """The base of what a store's commit or watch is refused with; nothing was done."""


class VersionConflict(StorageError):
    """The stored version is another than the one expected (or nothing is stored, or something is)."""


class WrongUid(StorageError):
    """The stored resource is another incarnation of the name."""


class StillOwns(StorageError):
    """The resource owns others, and was to be removed only if it owned nothing."""


class FenceLowered(StorageError):
    """The fence is below the one stored: the writer has been superseded."""


class UnknownTerm(StorageError):
    """The fence bears a term that the store has not granted yet to its controller and member."""


class StoreMismatch(StorageError):
    """A position is not one of this store's: another store id, or an incarnation that never was there."""


class LeaseEnded(StorageError):
    """The term of a lease has ended: it was released, has run out, or is another's."""


def not_held(name: str, holder: str, term: int, by: str, in_term: int) -> LeaseEnded:
    """Return the error for a term that has ended because the lease is held ``by`` this holder in another term."""
    why = f"{name} is not {holder}'s in term {term}: {by} holds term {in_term}"
    if by == holder:
        # A late request of the holder's own may have begun that term, once. A second process does so again and again.
        why += f"; if this happens again, another process is called {holder!r}, too: give each process its own name"
    return LeaseEnded(why)
