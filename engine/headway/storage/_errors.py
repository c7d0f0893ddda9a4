"""The errors that a store raises to reject a call."""

from __future__ import annotations

from headway.errors import HeadwayError


class StorageError(HeadwayError):
    """The base class of the errors of a rejected commit or watch. Nothing was changed."""


class VersionConflict(StorageError):
    """The stored version is not the expected one. This includes a resource that is unexpectedly stored or missing."""


class WrongUid(StorageError):
    """The stored resource has another uid: it is another incarnation of the name."""


class StillOwns(StorageError):
    """The commit required that a resource owns nothing, but it owns others."""


class FenceLowered(StorageError):
    """The fence is below the stored one, because the writer has been superseded."""


class UnknownTerm(StorageError):
    """The fence carries a term that the store has not granted to its controller and member."""


class StoreMismatch(StorageError):
    """The position does not belong to this store: it has another store id, or an unknown session."""


class LeaseEnded(StorageError):
    """The term of a lease has ended: it was released, has expired, or the lease has a new term."""


def not_held(name: str, holder: str, term: int, by: str, in_term: int) -> LeaseEnded:
    """Return the error for a term that has ended because ``by`` holds the lease in another term."""
    why = f"{holder} no longer holds {name} in term {term}: {by} holds it in term {in_term}"
    if by == holder:
        # A late request of the same holder may begin a term, but only once. A second process does so repeatedly.
        why += f"; if this happens again, another process is also named {holder!r}: give each process its own name"
    return LeaseEnded(why)
