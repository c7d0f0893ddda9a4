"""What is known of applies, of this process and of earlier ones, so that one that changes nothing needs no call."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from headway.kubernetes._managers import applied_by, changes_nothing
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
        self._last: OrderedDict[Name, tuple[Verb, dict[str, Any], pb.Resource]] = OrderedDict()
        # The version of an object, and the fields that each controller owned then, as JSON. Many objects share the
        # texts, which have the number of an owner in place of its uid.
        self._owned: dict[Name, tuple[str, str]] = {}
        self._texts: dict[str, str] = {}

    def note(self, name: Name, verb: Verb, object: dict[str, Any], stored: pb.Resource) -> None:
        """Remember an apply and what it has stored."""
        self._last[name] = verb, object, stored
        self._last.move_to_end(name)
        if len(self._last) > _MOST_APPLIED:
            self._last.popitem(last=False)

    def saw(self, type: KubernetesType[Any], name: Name, meta: Mapping[str, Any], *, deleted: bool) -> None:
        """Remember who owns which fields of an object that a stream has delivered."""
        found = {} if deleted else applied_by(meta.get("managedFields") or (), type.api_version)
        if not found:
            self._owned.pop(name, None)
            return
        if len(self._texts) > _MOST_TEXTS:
            self._texts.clear()
        text = json.dumps(found)
        for number, uid in _owners(meta):
            text = text.replace(uid, number)
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
        if asked != [verb, object] or stored.id != known.id:
            return False
        return known.version == stored.version or is_same(type, known, stored)


def is_same(type: KubernetesType[Any], known: pb.Resource, stored: pb.Resource) -> bool:
    """Return True if two states of an object differ in nothing but the status."""
    return (
        known.metadata == stored.metadata
        and known.owner == stored.owner
        and _without_status(type, known) == _without_status(type, stored)
    )


def _applied_part(object: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an object that an apply can own."""
    meta = {name: each for name, each in object["metadata"].items() if name not in ("name", "namespace")}
    part = {name: each for name, each in object.items() if name not in ("apiVersion", "kind", "metadata")}
    return {**part, "metadata": meta} if meta else part


def _owners(meta: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the uids of an object's owners, each with a number that stands in no JSON."""
    uids = sorted(each["uid"] for each in meta.get("ownerReferences") or ())
    return [(f"\0{number}\0", uid) for number, uid in enumerate(uids)]


def _without_status(type: KubernetesType[Any], resource: pb.Resource) -> dict[str, Any]:
    body = type.body_of(resource.data.value) if resource.data is not None else {}
    return {name: value for name, value in body.items() if name != "status"}
