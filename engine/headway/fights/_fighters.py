"""The fights of the run of one controller, and what is reported of them: the other writer, and what alternates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from headway.base import repr_text
from headway.controller import Definition
from headway.errors import PayloadError
from headway.events import ControllersFight
from headway.fights._turns import EXISTENCE, Fight, Part, Turns
from headway.protobuf import REDACTED, REDACTED_CHANGED, plan_class, redacted, secret_values
from headway.resource import Key, ResourceId, TypeName, pb, redacted_text
from headway.run import OwnWrites

RETOLD = 20.0
"""The time, in seconds, after which a delay of a key is reported again that is not longer than the one reported."""
_MOST_FIELDS = 3


class Alternating(NamedTuple):
    """A field that alternates, such as ``size``, ``metadata.color``, ``status.teams.Ready`` or ``existence``.

    Attributes:
        own: the value that the controller of the delayed key writes, as a text. Secrets are redacted.
        other: the value that the other writer writes.
    """

    path: str
    own: str
    other: str

    def __str__(self) -> str:
        return f"{self.path} is {self.own} and {self.other}"


WriterOf = Callable[[TypeName, Key, int], str]
"""A function that returns the writer of a revision of a resource, such as ``controller staff/teams``, or ""."""


class Fights(Turns):
    """The fights of the run of one controller.

    Args:
        own: the writes of the run.
        writer_of: knows the writers of this process.
    """

    def __init__(self, definition: Definition, own: OwnWrites, writer_of: WriterOf) -> None:
        super().__init__(own)
        self._definition, self._writer_of = definition, writer_of
        # The times of the last reports of keys, and the delays. The oldest is the first.
        self._told: dict[Key, tuple[float, float]] = {}

    def event(self, id: ResourceId, fight: Fight, delay: float) -> tuple[ControllersFight, str]:
        """Return the event that a key is delayed because of a fight, and what the key does, as a text."""
        of, (applied, parts) = self._definition.full_name, fight.undone[id.key]
        resource, revision = ResourceId(fight.type, fight.key[2], *fight.key[:2]), applied.revision
        own, by = self._own.find(fight.type, fight.key, revision), ""
        if own is not None and own.by is not None:
            by = f"its own reconcile of {ResourceId(self._definition.manages.name, own.by[2], *own.by[:2])}"
        by = by or self._writer_of(fight.type, fight.key, revision) or "another writer"
        fields = self._alternating(fight.type, applied.old, applied.new, parts)
        to = ", ".join(each.path for each in fields) or "it"
        text = f"fights with {by} over {resource}: each undoes what the other writes to {to}"
        return ControllersFight(of, id, resource, by, revision, fields, fight.turns, delay), text

    def is_told(self, key: Key, delay: float, now: float) -> bool:
        """Return True if a delay of the key that was as long was reported lately. If not, note that this one is."""
        told = self._told
        while told and now - next(iter(told.values()))[0] > RETOLD:
            del told[next(iter(told))]
        if key in told and delay <= told[key][1]:
            return True
        told.pop(key, None)
        told[key] = now, delay
        return False

    def _alternating(
        self, type: TypeName, own: pb.Resource | None, other: pb.Resource | None, parts: Collection[Part]
    ) -> tuple[Alternating, ...]:
        """Return the first fields that alternate between the own state and the other one."""
        if own is None or other is None:
            texts = ["absent" if each is None else "present" for each in (own, other)]
            return (Alternating("existence", *texts),)
        view = next(each for each in self._definition.types if each.name == type).view
        views = was, now = view(own), view(other)
        before, after = dict(_fields(was, own, was)), dict(_fields(now, other, was))
        whole = ("payload", 0) in parts
        paths = [
            path
            for path in {**before, **after}
            if before.get(path) != after.get(path) and (path[0] in parts or (whole and path[0][0] == "payload"))
        ]
        found = [
            Alternating(path[1], *(redacted_text(each.get(path, "unset"), views) for each in (before, after)))
            for path in paths[:_MOST_FIELDS]
        ]
        if EXISTENCE in parts:
            found.insert(0, Alternating("existence", "present", "marked for deletion"))
        return tuple(found[:_MOST_FIELDS])


_Path = tuple[Part, str]
"""A part of a resource, and the path of a field in it."""


def _fields(view: Any, message: pb.Resource, before: Any) -> Iterator[tuple[_Path, str]]:
    """Yield the paths and values of the fields of a resource. Secrets that are not as before are shown as changed."""
    try:
        data, known = view.data, secret_values(before.data)
    except PayloadError:
        data, known = None, {}
    if data is not None:
        marked = redacted(data, lambda path, value: REDACTED_CHANGED if known.get(path) != value else REDACTED)
        for field in plan_class(type(data)).fields:
            for path, value in _payload_fields(field.name, getattr(marked, field.name)):
                yield (("payload", field.number), path), value
    if (owner := message.owner) is not None:
        yield (("owner", ""), "owner"), repr_text(owner.name)
    for key, text in message.metadata.items():
        yield (("metadata", key), f"metadata.{key}"), repr_text(text)
    for key, status in message.status.items():
        for each in status.conditions:
            part = f"{key}.{each.type}"
            text = " ".join(filter(None, (each.state.name, each.reason, each.message)))
            yield (("status", part), f"status.{part}"), repr_text(text)


def _payload_fields(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if not is_dataclass(value):
        yield path, repr_text(value)
        return
    for each in fields(value):
        if not each.name.startswith("_"):
            yield from _payload_fields(f"{path}.{each.name}", getattr(value, each.name))
