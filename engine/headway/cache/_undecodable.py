"""The cached resources of one type whose payloads do not decode.

Writes reject such payloads, but an older store or another writer of the same etcd may have stored them. A function that
reads such a payload raises, which is not the function's fault. The resource is left out, and everything else continues.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headway._bounded_report import BoundedReport
from headway.cache._projection import UNDECODABLE, Projection, stored_type
from headway.cache._type_store import Applied, TypeStore
from headway.events import PayloadUndecodable
from headway.protobuf import payload_problem
from headway.resource import Key, pb


class Undecodable:
    """A record of these resources. Nothing is decoded for it until a function has raised."""

    def __init__(self, type: Any, bounded: BoundedReport) -> None:
        self._type = type
        self._payload = stored_type(type).payload
        self._report = bounded
        # The version that does not decode, by key. It counts while that version is cached.
        self._versions: dict[Key, str] = {}

    def note(self, key: Key, stored: pb.Resource) -> bool:
        """Return True if the payload of a complete stored message does not decode. If so, remember and report it."""
        problem = None if stored.data is None else payload_problem(self._payload, stored.data.value)
        if problem is None:
            return False
        if self._versions.get(key) != stored.version:
            self._versions[key] = stored.version
            self._report(PayloadUndecodable, type=self._type.name, key=key, version=stored.version, problem=problem)
        return True

    def is_so(self, gate: TypeStore, key: Key, message: pb.Resource) -> bool:
        """Return True if the payload of this state of a resource does not decode. Remember a cached state."""
        if isinstance(self._type, Projection):
            # The complete message was checked when it arrived, and is not kept.
            return message.data is UNDECODABLE
        if gate.entries.get(key) is message:
            return self.note(key, message)
        return message.data is not None and payload_problem(self._payload, message.data.value) is not None

    def follow(self, applied: Iterable[Applied]) -> None:
        """Forget the resources that have changed."""
        if self._versions:
            for key, _, new, _ in applied:
                if new is None or self._versions.get(key) != new.version:
                    self._versions.pop(key, None)

    def held(self, entries: Mapping[Key, pb.Resource]) -> list[Key]:
        """Return the keys of those that are cached, in order."""
        return sorted(
            key for key, version in self._versions.items() if (held := entries.get(key)) and held.version == version
        )
