"""The decision what an operation changes, or why it is rejected. Pure."""

from __future__ import annotations

from headway.resource import Key, Kind, pb
from headway.storage._backend import Operation, Put, Require, RequireOwnsNothing
from headway.storage._errors import StillOwns, VersionConflict, WrongUid
from headway.storage._log import LogChange
from headway.storage._tables import ResourceTables

Applied = tuple[Kind, Key, pb.Resource | None, pb.Resource | None]
"""A change (kind, key, stored before, stored now)."""


def decide(tables: ResourceTables, operation: Operation) -> Applied | None:
    """Return the change that the operation makes, or None. Raise a StorageError if the store rejects it."""
    if isinstance(operation, RequireOwnsNothing):
        if tables.owns(operation.owner_uid):
            raise StillOwns(f"uid {operation.owner_uid} still owns resources")
        return None
    stored = tables.get(operation.kind, operation.key)
    if isinstance(operation, Require):
        _check_required(operation, stored)
        return None
    if isinstance(operation, Put):
        resource = operation.resource
        if stored is not None and stored.id.uid != resource.id.uid:  # type: ignore[union-attr]  # stored ids are whole
            raise WrongUid(f"{operation.key[2]} is stored with another uid")
        if (stored.version if stored is not None else "") != operation.expected:
            raise VersionConflict(f"{operation.key[2]} is not stored at version {operation.expected!r}")
        return (operation.kind, operation.key, stored, resource)
    if stored is None or stored.id.uid != operation.uid:  # type: ignore[union-attr]  # as above
        return None
    if stored.version != operation.expected:
        raise VersionConflict(f"{operation.key[2]} is not stored at version {operation.expected!r}")
    return (operation.kind, operation.key, stored, None)


def changes_of(kind: Kind, old: pb.Resource | None, new: pb.Resource | None) -> list[LogChange]:
    """Return the log entries of a change: one, or two if the resource is now stored as another version of its kind.

    The two entries, in one commit, delete the resource as the old version and store it as the new one. A watcher of
    one version therefore gets the deletion of every resource that it has seen, and keeps no record of them itself.
    """
    if new is None:
        return [] if old is None else [(kind, old, True)]
    if old is None or version_of(old) == version_of(new):
        return [(kind, new, False)]
    return [(kind, old, True), (kind, new, False)]


def version_of(resource: pb.Resource) -> str:
    """Return the version of its kind as which a resource is stored."""
    return resource.id.type.group_version  # type: ignore[union-attr]  # stored ids are whole


def _check_required(required: Require, stored: pb.Resource | None) -> None:
    if (
        stored is None
        or stored.id.uid != required.uid  # type: ignore[union-attr]  # stored ids are whole
        or (required.expected and stored.version != required.expected)
    ):
        raise VersionConflict(f"{required.key[2]} has changed since it was read")
