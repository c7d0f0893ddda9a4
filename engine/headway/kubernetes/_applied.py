"""What is known of applies, of this process and of earlier ones, so that one that changes nothing needs no call."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from headway.kubernetes._managers import applied_by, changes_nothing, json_text
from headway.kubernetes._objects import object_of
from headway.kubernetes._types import KubernetesType
from headway.kubernetes._verbs import Verb
from headway.resource import Key, TypeName, pb

_MOST_APPLIED = 10_000
_MOST_TEXTS = 1_000

Name = tuple[TypeName, Key]


class Applied:
    """What was applied last to each object, and which of its fields a controller owns by apply."""

    def __init__(self) -> None:
        self._last: OrderedDict[Name, tuple[Verb, str, pb.Resource]] = OrderedDict()
        # The version of an object, and the fields that each controller owned then, as JSON. Many objects share the
        # texts, which have the number of an owner in place of its uid.
        self._owned: dict[Name, tuple[str, str]] = {}
        self._texts: dict[str, str] = {}

    def note(self, name: Name, verb: Verb, object: dict[str, Any], stored: pb.Resource) -> None:
        """Remember an apply and what it has stored."""
        self._last[name] = verb, json_text(object), stored
        self._last.move_to_end(name)
        if len(self._last) > _MOST_APPLIED:
            self._last.popitem(last=False)

    def is_settled(
        self, type: KubernetesType[Any], verb: Verb, object: dict[str, Any], made: Mapping[str, Any]
    ) -> bool:
        """Return True if the same apply of an object that the server has answered would change nothing more.

        It may: an apply of an empty list removes a list, and the next one stores an empty one.
        """
        managed = made["metadata"].get("managedFields") or ()
        fields = applied_by(managed, type.api_version, verb.manager).get(verb.manager)
        return fields is not None and changes_nothing(fields, _applied_part(object), _applied_part(made))

    def saw(self, type: KubernetesType[Any], name: Name, meta: Mapping[str, Any], *, deleted: bool) -> None:
        """Remember who owns which fields of an object that a stream has delivered."""
        found = {} if deleted else applied_by(meta.get("managedFields") or (), type.api_version)
        if len(self._texts) > _MOST_TEXTS:
            self._texts.clear()
        text = json.dumps(found) if found else ""
        for number, uid in _owners(meta):
            text = text.replace(uid, number)
        last = self._last.get(name)
        newer = last is not None and int(last[2].version) < int(meta["resourceVersion"])
        if newer and text != self._owned.get(name, ("", ""))[1]:
            # Others may own now what was applied, also if the values are the same.
            del self._last[name]
        if not text:
            self._owned.pop(name, None)
            return
        self._owned[name] = meta["resourceVersion"], self._texts.setdefault(text, text)

    def holds(
        self, type: KubernetesType[Any], name: Name, verb: Verb, object: dict[str, Any], known: pb.Resource
    ) -> bool:
        """Return True if an apply would change nothing of the known state. Return False in doubt."""
        if name in self._last and self._was_last(type, name, verb, object, known):
            return True
        version, text = self._owned.get(name, ("", ""))
        if version != known.version or verb.manager not in text:
            return False
        there = _applied_part(object_of(type, known))
        for number, uid in _owners(there.get("metadata") or {}):
            text = text.replace(number, uid)
        fields = json.loads(text).get(verb.manager)
        if fields is None or not changes_nothing(fields, _applied_part(object), there):
            return False
        self.note(name, verb, object, known)
        return True

    def _was_last(
        self, type: KubernetesType[Any], name: Name, verb: Verb, object: dict[str, Any], known: pb.Resource
    ) -> bool:
        """Return True if the same was applied, and nothing but the status has changed since."""
        *asked, stored = self._last[name]
        if asked != [verb, json_text(object)] or stored.id != known.id:
            return False
        return known.version == stored.version or (
            known.metadata == stored.metadata
            and known.owner == stored.owner
            and _compared(type, known, object) == _compared(type, stored, object)
        )


def _applied_part(object: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an object that an apply can own."""
    meta = {name: each for name, each in object["metadata"].items() if name not in ("name", "namespace")}
    part = {name: each for name, each in object.items() if name not in ("apiVersion", "kind", "metadata")}
    return {**part, "metadata": meta} if meta else part


def _owners(meta: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the uids of an object's owners, each with a number that stands in no JSON."""
    uids = sorted(each["uid"] for each in meta.get("ownerReferences") or ())
    return [(f"\0{number}\0", uid) for number, uid in enumerate(uids)]


def _compared(type: KubernetesType[Any], resource: pb.Resource, applied: Mapping[str, Any]) -> str:
    """Return the text of a resource, without the status that others write, unless the apply has one."""
    body = type.body_of(resource.data.value) if resource.data is not None else {}
    return json_text({name: value for name, value in body.items() if name != "status" or "status" in applied})
