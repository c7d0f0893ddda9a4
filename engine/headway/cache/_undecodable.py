"""The cached resources whose payloads do not decode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.base import BoundedReport
from headway.cache._projection import UNDECODABLE, CachedType, Projection, stored_type
from headway.cache._type_store import Applied, TypeStore
from headway.events import PayloadUndecodable
from headway.protobuf import payload_problem
from headway.resource import Key, is_unreadable, pb, unreadable_error


class Undecodable:
    """The cached resources of one type whose payloads do not decode. No payload is decoded until a function has raised.

    Writes reject such payloads, but an older store or another writer of the same etcd may have stored them. A function
    that reads such a payload raises, which is not the function's fault. The resource is left out, and everything else
    continues.

    Attributes:
        versions: the version that does not decode, by key. It counts while that version is cached.
    """

    def __init__(self, type: CachedType[Any], bounded: BoundedReport) -> None:
        self._type = type
        self._payload = stored_type(type).payload
        self._report = bounded
        self.versions: dict[Key, str] = {}

    def note(self, key: Key, stored: pb.Resource) -> bool:
        """Return True if the payload of a complete stored message does not decode. If so, remember and report it."""
        problem = self._problem(stored)
        if problem is None:
            return False
        if self.versions.get(key) != stored.version:
            self.versions[key] = stored.version
            self._report(PayloadUndecodable, type=self._type.name, key=key, version=stored.version, problem=problem)
        return True

    def check(self, store: TypeStore, key: Key, message: pb.Resource) -> bool:
        """Return True if the payload of this state of a resource does not decode. Remember a cached state."""
        if isinstance(self._type, Projection):
            # The complete message was checked when it arrived, and is not kept.
            return message.data is UNDECODABLE
        if store.entries.get(key) is message:
            return self.note(key, message)
        return self._problem(message) is not None

    def forget_changed(self, applied: Sequence[Applied]) -> None:
        """Forget the resources that have changed."""
        for key, _, new, _ in applied:
            if new is None or self.versions.get(key) != new.version:
                self.versions.pop(key, None)

    def found(self, store: TypeStore) -> list[Key]:
        """Return the keys of those that are cached, in order."""
        versions, entries = self.versions, store.entries
        return sorted(key for key in versions if key in entries and entries[key].version == versions[key])

    def _problem(self, message: pb.Resource) -> str | None:
        if is_unreadable(message):
            # Its bytes are no payload. By chance they may decode, as unknown fields.
            return str(unreadable_error(message))
        return None if message.data is None else payload_problem(self._payload, message.data.value)
