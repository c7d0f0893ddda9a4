"""A recording store in memory that can be put back to a backup, compacted, or replaced by another one while in use."""

from __future__ import annotations

import uuid
from copy import deepcopy
from dataclasses import dataclass

import trio

from headway.errors import StoreUnusable
from headway.resource import Key, Kind, pb
from headway.storage import CommitLog, Pulse, ResourceTables
from tests.helpers.truth import RecordingBackend


@dataclass(frozen=True)
class Backup:
    """The state of a store at a revision."""

    revision: int
    resources: dict[tuple[Kind, Key], pb.Resource]
    fences: dict[tuple[str, str], tuple[int, int]]
    checkpoints: dict[str, dict[str, int]]


class RestorableBackend(RecordingBackend):
    """A `RecordingBackend` that an operator restores from a backup. Its open watches fail, as by a restart."""

    def back_up(self) -> Backup:
        """Return the present state."""
        return Backup(self._log.head, dict(self._now), dict(self._fences), deepcopy(self._checkpoints))

    def restore(self, backup: Backup, *, new_id: bool) -> None:
        """Put the store back to a backup, in a new session. ``new_id`` is True if the restore changes the store's id.

        Everything after the backup is lost, and the restored store has no history before it.
        """
        self.commits = [commit for commit in self.commits if commit.revision <= backup.revision]
        self._now = dict(backup.resources)
        self._tables = ResourceTables()
        for (kind, key), resource in backup.resources.items():
            self._tables.put(kind, key, resource)
        self._fences, self._checkpoints = dict(backup.fences), deepcopy(backup.checkpoints)
        self._store_id = uuid.uuid4().hex if new_id else self._store_id
        self._session = uuid.uuid4().hex
        self._log = CommitLog(backup.revision)
        self._position = self._at(backup.revision)
        stopped, self._pulse = self._pulse, Pulse()
        stopped.stop(lambda: StoreUnusable("the store was restarted"))

    def compact(self) -> None:
        """Drop all history but the last commit, as if it were old."""
        self._log._max_changes, kept = 0, self._log._max_changes
        self._log._trim(trio.current_time())
        self._log._max_changes = kept
