"""Operations and fences as callers pass them to a store, and the errors of a rejected call. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headway import errors
from headway.errors import Conflict, Fenced, HeadwayError, StoreChanged
from headway.resource import Key, Kind, Position, pb
from headway.resource import Within as Within


class Fence(NamedTuple):
    """A writer's term and number. A commit that carries a lower pair than the stored one is rejected."""

    controller: str
    member: str
    term: int
    number: int


class Raised(NamedTuple):
    """A fence raised by a commit. From ``position`` on, no write with a lower fence is stored.

    Attributes:
        fence: the fence as it is stored now.
        position: the position of the commit.
        checkpoint: the revision recorded by `record_checkpoint`. A fence's first raise records one (see
            `first_checkpoint`): how far its controller had got when it divided its keys in another way, or the revision
            of the raise, because a controller has no work pending from before its first fence.
    """

    fence: Fence
    position: Position
    checkpoint: int


class Put(NamedTuple):
    """Store ``resource``. The store fills in its version.

    ``expected`` is the version that must be stored now. If it is empty, the resource must not exist. If the stored
    resource has another uid, the commit fails with WrongUid before versions are compared. Ownership of ``resource``
    passes to the store.
    """

    kind: Kind
    key: Key
    resource: pb.Resource
    expected: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete the resource with this kind and key, if it has this ``uid`` and this version.

    If nothing is stored, or a resource with another uid, nothing happens. Another version is a VersionConflict.
    """

    kind: Kind
    key: Key
    uid: str
    expected: str


@dataclass(frozen=True, slots=True)
class Require:
    """Reject the commit unless the resource with this kind and key has this ``uid`` and version.

    The version is compared only if ``expected`` is given. The commit fails with VersionConflict in every case, even if
    no such resource exists. This operation changes nothing itself.
    """

    kind: Kind
    key: Key
    uid: str
    expected: str = ""


@dataclass(frozen=True, slots=True)
class RequireOwnsNothing:
    """Reject the commit with StillOwns if this uid owns a resource. Changes nothing itself."""

    owner_uid: str


Operation = Put | Remove | Require | RequireOwnsNothing

MOST_OPERATIONS = 32
"""The number of operations in one commit that every store accepts."""


def refuse_repeated_keys(operations: Sequence[Operation]) -> None:
    """Raise ValueError if two operations of one commit change the same resource: their order would be ambiguous."""
    if len(operations) < 2:
        return
    seen: set[tuple[Kind, Key]] = set()
    for operation in operations:
        if isinstance(operation, Require | RequireOwnsNothing):
            continue
        place = (operation.kind, operation.key)
        if place in seen:
            raise ValueError(f"{'.'.join(operation.kind)} {'/'.join(operation.key)} is changed twice in one commit")
        seen.add(place)


class StorageError(HeadwayError):
    """The base class of the errors of a rejected commit or watch. Nothing was changed."""


class VersionConflict(StorageError, Conflict):
    """The stored version is not the expected one. This includes a resource that is unexpectedly stored or missing."""


class WrongUid(StorageError, errors.WrongUid):
    """The stored resource has another uid: it is another incarnation of the name."""


class StillOwns(StorageError):
    """The commit required that a resource owns nothing, but it owns others."""


class FenceLowered(StorageError, Fenced):
    """The fence is below the stored one, because the writer has been superseded."""


class UnknownTerm(StorageError, errors.UnknownTerm):
    """The fence carries a term that the store has not granted to its controller and member."""


class StoreMismatch(StorageError, StoreChanged):
    """The position does not belong to this store: it has another store id, or an unknown session."""
