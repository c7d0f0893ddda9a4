"""The owners of a resource's fields, in an entry of its metadata. Pure.

The entry is JSON: the version of the type that the paths belong to, the managers, and the paths of each, as in
``{"v1":{"staff/sizer":["size"]}}``. A writer who applies fields puts a request there instead. The service puts the
owners in its place, and lets no writer change them in another way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from headway.errors import InvalidArgument
from headway.resource import FIELD_OWNERS, ResourceType, quoted

_LONGEST_NAME = 200

_REQUEST = "apply"
"""No version of a type has this name."""

Owners = dict[str, list[str]]
"""The sorted paths of fields by the name of the manager that owns them."""


class Request(NamedTuple):
    """What a manager owns after a write.

    Attributes:
        based_on: the version of the resource that the write replaces; empty for a creation. A request that was stored
            by a server that does not know it is so never taken for a new one.
        version: the version of the type that the paths belong to.
    """

    based_on: str
    version: str
    manager: str
    paths: list[str]

    def text(self) -> str:
        """Return the entry of the metadata."""
        return _json({_REQUEST: self})


def check_manager(name: object) -> None:
    """Raise InvalidArgument if the name of a manager is invalid."""
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise InvalidArgument(
            f"manager {quoted(name)} must be the name of the writer, of up to {_LONGEST_NAME} printable "
            "characters, such as manager='deploy'. In a reconciler it is the controller"
        )


def owners_in(type: ResourceType[Any], metadata: Mapping[str, str]) -> Owners:
    """Return the owners of the fields of a resource. An entry of another version of the type has none."""
    found = _read(metadata.get(FIELD_OWNERS, ""), type.name.version)
    if not isinstance(found, dict):
        return {}
    return {manager: paths for manager, paths in found.items() if _are_paths(paths)}


def request_in(metadata: Mapping[str, str]) -> Request | None:
    """Return the request of a writer who applies fields, or None."""
    found = _read(metadata.get(FIELD_OWNERS, ""), _REQUEST)
    if not isinstance(found, list) or len(found) != len(Request._fields):
        return None
    made = Request(*found)
    return made if all(isinstance(each, str) for each in made[:3]) and _are_paths(made.paths) else None


def put_owners(type: ResourceType[Any], metadata: dict[str, str], owners: Owners) -> None:
    """Put the owners into the metadata of a resource. Those without a field are left out."""
    held = {manager: sorted(paths) for manager, paths in sorted(owners.items()) if paths}
    if held:
        metadata[FIELD_OWNERS] = _json({type.name.version: held})
    else:
        metadata.pop(FIELD_OWNERS, None)


def owners_by_field(type: ResourceType[Any], metadata: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
    """Return the sorted names of the managers that own each field, by its path."""
    pairs = [(path, manager) for manager, paths in owners_in(type, metadata).items() for path in paths]
    found: dict[str, tuple[str, ...]] = {}
    for path, manager in sorted(pairs):
        found[path] = (*found.get(path, ()), manager)
    return MappingProxyType(found)


def _read(text: str, name: str) -> Any:
    try:
        found = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    return found.get(name) if isinstance(found, dict) else None


def _are_paths(given: Any) -> bool:
    return isinstance(given, list) and all(isinstance(each, str) for each in given)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def sorted_paths(paths: Iterable[str]) -> list[str]:
    """Return paths in the order of the entry, each once."""
    return sorted(set(paths))
