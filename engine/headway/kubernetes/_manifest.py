"""`Manifest`: the payload of a type without a message class. It is a mapping, and is stored as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from headway.errors import InvalidArgument, PayloadError
from headway.protobuf import field, message


def dumped(body: Mapping[str, Any]) -> bytes:
    """Return the fields of an object as JSON, without blanks. Raises PayloadError for what JSON does not have."""
    try:
        return json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise PayloadError(f"a manifest must have text, numbers, lists and mappings alone: {error}") from None


@message(name="headway.kubernetes.v1.Manifest")
class Manifest:
    """The fields of an object but apiVersion, kind and metadata, as a mapping: ``web.data["spec"]["replicas"] = 3``.

    It is decoded when it is first read.
    """

    json: bytes = field(1)

    @property
    def body(self) -> dict[str, Any]:
        """The mapping itself. Changes in it, at any depth, are changes of the manifest."""
        own = self.__dict__
        if (found := own.get("_body")) is None:
            found = own["_body"] = loaded(own["json"])
        return cast("dict[str, Any]", found)

    def __repr__(self) -> str:
        # Without the values: a Secret has its data in them.
        return f"Manifest({', '.join(self.body)})"

    def __getitem__(self, name: str) -> Any:
        return self.body[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.body[name] = value

    def __delitem__(self, name: str) -> None:
        del self.body[name]

    def __contains__(self, name: object) -> bool:
        return name in self.body

    def __iter__(self) -> Iterator[str]:
        return iter(self.body)

    def __len__(self) -> int:
        return len(self.body)

    def keys(self) -> Any:
        """Return the names of the fields."""
        return self.body.keys()

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, or the default if it is absent."""
        return self.body.get(name, default)


def _json(manifest: Manifest) -> bytes:
    body = manifest.__dict__.get("_body")
    return manifest.__dict__["json"] if body is None else dumped(body)


def _set_json(manifest: Manifest, value: bytes) -> None:
    manifest.__dict__.pop("_body", None)
    manifest.__dict__["json"] = value


# The field is encoded when it is read, so that a change in the mapping is never lost.
Manifest.json = property(_json, _set_json)  # type: ignore[assignment]  # it takes and returns bytes as before


def loaded(text: bytes) -> dict[str, Any]:
    """Return the mapping of a JSON text; empty text is an empty mapping. Raises PayloadError."""
    try:
        found = json.loads(text) if text else {}
    except ValueError as error:
        raise PayloadError(f"the manifest is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise PayloadError(f"the manifest must be a JSON object, not a {type(found).__name__}")
    return found


def manifest(body: Mapping[str, Any]) -> Manifest:
    """Return the manifest of a mapping, which stays the caller's own. Raises InvalidArgument for metadata in it."""
    if wrong := body.keys() & {"apiVersion", "kind", "metadata"}:
        raise InvalidArgument(
            f"the manifest has {sorted(wrong)[0]!r}: the type has apiVersion and kind, and new(...) takes the name, "
            "the namespace, the owner and the metadata"
        )
    return Manifest(json=dumped(body))
