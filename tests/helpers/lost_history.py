"""What a store had, and what a controller knew of it, when the store was put back to a backup."""

from __future__ import annotations

from typing import Any

from headway.resource import ResourceType
from headway.testing import ScriptedChannel
from tests.helpers.pools import PoolsApp
from tests.helpers.truth import Record, RecordingBackend, RecordingSqlite


class LostHistory(Record):
    """The record of a store up to a moment.

    The run that goes on after the store was put back sees this history. Only replies to its writes may add to it.

    Attributes:
        head: the revision of the store at that moment.
        done, unknown: the calls of the controllers up to that moment, as in `ScriptedChannel`.
    """

    def __init__(self, pools: PoolsApp, channel: ScriptedChannel, store: RecordingBackend | RecordingSqlite) -> None:
        super().__init__()
        self.commits = list(store.commits)
        # It may be above the last commit, because a raised fence takes a revision as well.
        self.head = store.position.revision
        self.done, self.unknown = list(channel.done), list(channel.unknown)
        self._dishonest = {type.kind for type in pools.types if not channel.is_honest(type)}

    def is_honest(self, type: ResourceType[Any]) -> bool:
        """Return True if no false bookmark of the type was uncorrected at that moment."""
        return type.kind not in self._dishonest
