"""Answers to the questions of an API server: conversions of objects, and hooks on writes. No I/O."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from headway.api import ProgramFailed
from headway.base import Steps, reason_text, repr_text
from headway.errors import InvalidArgument, PayloadError
from headway.events import ConversionFailed
from headway.http import HttpRefusal, invalid
from headway.kubernetes._json import has_oneof, with_kept
from headway.kubernetes._merge_patch import merge_patch, patched
from headway.kubernetes._objects import UNREADABLE, object_of, resource_of
from headway.kubernetes._types import CORE, MAX_NAME, KubernetesType
from headway.protobuf import decode, encode
from headway.resource import Registry, ResourceId
from headway.service import hooked
from headway.versions import BadConversion, VersionChain, chain_of, different_fields, merges

Object = dict[str, Any]

NEWER = "headway.dev/newer"
"""The annotation of an object with what it lacks of the newer version that it was converted from: a merge patch."""

_TOO_LARGE = "too large"
"""Stands in the annotation for what has no place there. A write of the older version is refused then."""

_MOST_ANNOTATIONS = 256 << 10
_MOST_REPORTED = 100
_FORGOTTEN = 3600.0
"""The seconds in which at most `_MOST_REPORTED` failed conversions are reported, because anybody may ask for one."""

_OF_FIELD = re.compile(r"((?:spec|metadata)(?:\.\w+|\[[^\]\n]*\])*): (.+)", re.DOTALL)


class Reviews:
    """The questions about the types of a program.

    Args:
        failed: called with a path and the unexpected error of a hook.
        report: called with each ConversionFailed.
    """

    def __init__(
        self,
        registry: Registry,
        failed: Callable[[str, BaseException], object],
        report: Callable[[ConversionFailed], object],
    ) -> None:
        self._registry = registry
        self._failed = failed
        self._report = report
        self._reported: set[int] = set()
        self._forgotten_at = 0.0
        # By path: the apiVersion and the kind of the question and of its answer, and what answers it.
        self._reviews: dict[str, tuple[str, str, Callable[[Object], Steps[Object]]]] = {
            "/convert": ("apiextensions.k8s.io/v1", "ConversionReview", self._convert),
            "/mutate": ("admission.k8s.io/v1", "AdmissionReview", self._mutate),
            "/validate": ("admission.k8s.io/v1", "AdmissionReview", self._validate),
        }

    def answered(self, path: str, body: bytes) -> Steps[bytes]:
        """Return the answer to a question, in steps. Raises HttpRefusal for what is no question for this program."""
        if path not in self._reviews:
            raise HttpRefusal(404, "NOT_FOUND", f"there is no {path}: use {', '.join(self._reviews)}")
        version, kind, answer = self._reviews[path]
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise invalid(f"the body is not JSON: {reason_text(error)}") from None
        names = (asked.get("apiVersion"), asked.get("kind")) if isinstance(asked, dict) else None
        if names != (version, kind):
            raise invalid(f"{path} answers {kind} of {version}, and not {repr_text(names)}")
        request = _part(asked, "request", dict)
        response = {"uid": _part(request, "uid", str), **(yield from answer(request))}
        made = {"apiVersion": version, "kind": kind, "response": response}
        return json.dumps(made, separators=(",", ":")).encode()

    # Conversions.

    def _convert(self, request: Object) -> Steps[Object]:
        wanted, made = _part(request, "desiredAPIVersion", str), []
        for each in _part(request, "objects", list):
            try:
                made.append((yield from self._converted(each, wanted)))
            except (BadConversion, PayloadError, RecursionError) as error:
                id = self._conversion_failed(each, wanted, error)
                # An API server needs all of them: an object that is left out would seem to be deleted.
                return {"result": {"status": "Failure", "message": f"{id}: {reason_text(error)}"}}
        return {"convertedObjects": made, "result": {"status": "Success"}}

    def _converted(self, object: Object, version: str) -> Steps[Object]:
        source = self._type_of(object)
        wanted = self._type_of({**object, "apiVersion": version})
        chain = chain_of(self._registry, source.kind)
        if chain is None or source.name.version not in chain or wanted.name.version not in chain:
            raise invalid(f"no converter leads from {source.name} to {wanted.name}: declare it by app.converter(...)")
        body = {name: value for name, value in object.items() if name not in ("apiVersion", "kind", "metadata")}
        # No class has the conditions, which have one form in all versions.
        conditions = body["status"].get("conditions") if isinstance(body.get("status"), dict) else None
        if conditions is not None:
            body["status"] = {name: value for name, value in body["status"].items() if name != "conditions"}
        meta = {**object["metadata"]}
        annotations = meta["annotations"] = {**(meta.get("annotations") or {})}
        packed = source.payload_of(body)
        if (newer := annotations.pop(NEWER, None)) is not None:
            if newer == _TOO_LARGE and _is_stored(wanted) and not _is_deleted(object):
                raise PayloadError(
                    f"it has fields that {source.name} lacks, and cannot keep because they are too large: write it as "
                    f"{wanted.name}"
                )
            source, packed = yield from self._restored(chain, object, packed, newer, version)
        if source is not wanted:
            of, to, before = source.name.version, wanted.name.version, packed
            given = decode(source.payload, before)
            made = yield from chain.packing(given, of, to)
            packed = with_kept(given, wanted.payload, made.value)
            if chain.newer(source, wanted) is source:
                back = yield from chain.converting(decode(wanted.payload, made.value), to, of)
                if different_fields(given, back):
                    shown = source.body_of(with_kept(given, source.payload, encode(back)))
                    lost = {"version": of, "fields": merge_patch(shown, source.body_of(before))}
                    annotations[NEWER] = json.dumps(lost)
                    if sum(len(text.encode()) for each in annotations.items() for text in each) > _MOST_ANNOTATIONS:
                        # One object must not stop every list.
                        annotations[NEWER] = _TOO_LARGE
                        if _is_stored(wanted):
                            raise PayloadError(
                                f"the fields that {wanted.name} lacks, in which it is stored, are too large"
                            )
        fields = wanted.body_of(packed)
        if conditions is not None:
            fields.setdefault("status", {})["conditions"] = conditions
        if not annotations:
            del meta["annotations"]
        yield
        return {"apiVersion": version, "kind": object["kind"], "metadata": meta, **fields}

    def _conversion_failed(self, object: Object, wanted: str, error: Exception) -> ResourceId:
        """Report a failed conversion, once for each version of an object: an API server repeats its question."""
        type, meta = self._type_of(object), object["metadata"]
        name, namespace = (str(meta.get(key, ""))[:MAX_NAME] for key in ("name", "namespace"))
        id = ResourceId(type.name, name, namespace=namespace)
        if (now := time.monotonic()) >= self._forgotten_at:
            self._reported.clear()
            self._forgotten_at = now + _FORGOTTEN
        key = hash((id, wanted, str(meta.get("resourceVersion"))))
        if key not in self._reported and len(self._reported) < _MOST_REPORTED:
            self._reported.add(key)
            self._report(ConversionFailed(type.name, id, wanted, error))
        return id

    def _restored(
        self, chain: VersionChain, object: Object, packed: bytes, newer: str, wanted: str
    ) -> Steps[tuple[Any, bytes]]:
        """Return an object in the newer version that it was converted from, with the fields that only this one has."""
        source = self._type_of(object)
        given, of = decode(source.payload, packed), source.name.version
        # Anybody who writes objects can write annotations, and a converter may refuse what neither version was written
        # with. Neither must stop every list: what is written counts.
        with suppress(ValueError, LookupError, TypeError, PayloadError, RecursionError, BadConversion):
            stored = json.loads(newer)
            type: Any = chain.type_of(stored["version"])
            if chain.newer(source, type) is source:
                return source, packed
            to = type.name.version
            after = yield from chain.converting(given, of, to)
            # Two arms of a oneof do not fit together. A converter may need what is the same.
            base = {} if has_oneof(type.payload) else type.body_of(encode(after))
            kept = decode(type.payload, type.payload_of(patched(base, stored["fields"])))
            shown = yield from chain.converting(kept, to, of)
            seen = yield from chain.converting(shown, of, to)
            for steps in merges(seen, after, kept):
                merged = yield from steps
                if not different_fields(given, (yield from chain.converting(merged, to, of))):
                    return type, with_kept(given, type.payload, encode(merged))
        lost = PayloadError(f"what {NEWER} has does not fit what was written, and is dropped")
        self._conversion_failed(object, wanted, lost)
        return source, packed

    # Hooks.

    def _mutate(self, request: Object) -> Steps[Object]:
        object = _part(request, "object", dict)
        type = self._type_of(object)
        if _is_deleted(object) or type.hooks.mutate is None:
            return {"allowed": True}
        made = _resource(type, object, self._type_of_owner)
        if made.data is None or made.data.value == UNREADABLE:
            # The API server checks it by its schema next, and says what is wrong.
            return {"allowed": True}
        before = object_of(type, made)
        yield
        try:
            after = object_of(type, hooked(type, "mutate", type.hooks.mutate, made))
        except (ProgramFailed, PayloadError) as error:
            return self._failing(type, object, "mutate", error)
        patch = [*_changes("/metadata", before.pop("metadata"), after.pop("metadata")), *_changes("", before, after)]
        if not patch:
            return {"allowed": True}
        return {
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
        }

    def _validate(self, request: Object) -> Steps[Object]:
        object = _part(request, "object", dict)
        type = self._type_of(object)
        if _is_deleted(object) or type.hooks.validate is None:
            return {"allowed": True}
        made = _resource(type, object, self._type_of_owner)
        yield
        try:
            if made.data is not None and made.data.value == UNREADABLE:
                type.payload_of(object)
            hooked(type, "validate", type.hooks.validate, made)
        except InvalidArgument as error:
            return _refusal(type, object, reason_text(error.__cause__ or error))
        except PayloadError as error:
            return _refusal(type, object, str(error))
        except ProgramFailed as error:
            return self._failing(type, object, "validate", error)
        return {"allowed": True}

    def _failing(self, type: KubernetesType[Any], object: Object, hook: str, error: Exception) -> Object:
        self._failed(f"the {hook} hook of {type.name}", error.__cause__ or error)
        # Not as an error of the call: the write was certainly not stored, and the policy is not for faults of a hook.
        return _refusal(type, object, f"the {hook} hook of {type.name} failed; the log of the program says why")

    def _type_of(self, object: Object) -> KubernetesType[Any]:
        if not isinstance(object, dict):
            raise invalid(f"expected an object, not {repr_text(object)}")
        version, kind = _part(object, "apiVersion", str), _part(object, "kind", str)
        _part(object, "metadata", dict)
        found = self._type_of_owner(version, kind)
        if found is None or found.api_version != version:
            raise invalid(f"this program has no type {kind} of {version}")
        return found

    def _type_of_owner(self, api_version: str, kind: str) -> KubernetesType[Any] | None:
        group, _, version = api_version.rpartition("/")
        found = self._registry.find((group or CORE, version, kind))
        return found if isinstance(found, KubernetesType) else None


def _is_stored(type: KubernetesType[Any]) -> bool:
    return type.crd is not None and type.crd[1].stored


def _part(of: Object, name: str, kind: type[Any]) -> Any:
    value = of.get(name)
    if not isinstance(value, kind):
        raise invalid(f"{name} must be a {kind.__name__}, not {repr_text(value)}")
    return value


def _is_deleted(object: Object) -> bool:
    """Return True for an object that is being deleted: no hook may keep it from losing its finalizers."""
    return "deletionTimestamp" in object["metadata"]


def _resource(type: KubernetesType[Any], object: Object, type_of: Any) -> Any:
    """Return the object of a write as a resource. A creation has no version yet, and no uid or name before defaults."""
    meta = object["metadata"]
    is_new = "resourceVersion" not in meta
    unknown = {"name": "", "uid": "", "resourceVersion": "1"}
    made = resource_of(type, {**object, "metadata": {**unknown, **meta}}, type_of)
    if is_new:
        made.version = ""
    return made


def _changes(path: str, before: Object, after: Object) -> list[Object]:
    """Return the operations of a JSON Patch that make an object of another one. The status is not for hooks."""
    made: list[Object] = []
    for name in {**before, **after}:
        if name == "status" or before.get(name) == after.get(name):
            continue
        place = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        made.append(
            {"op": "add", "path": place, "value": after[name]} if name in after else {"op": "remove", "path": place}
        )
    return made


def _refusal(type: KubernetesType[Any], object: Object, text: str) -> Object:
    """Return the refusal of a write. A text such as "spec.replicas: must be odd" names the field as the cause."""
    name = str(object["metadata"].get("name") or object["metadata"].get("generateName") or "")
    message = f"{type.name.kind} {name}: {text}"
    status: Object = {"status": "Failure", "code": 422, "reason": "Invalid", "message": message}
    if found := _OF_FIELD.fullmatch(text):
        cause = {"reason": "FieldValueInvalid", "field": found[1], "message": found[2]}
        status["details"] = {"group": type.name.group, "kind": type.name.kind, "name": name, "causes": [cause]}
    return {"allowed": False, "status": status}
