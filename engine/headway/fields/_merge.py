"""What an apply of fields makes of the stored resource, and what prevents it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar, cast

from headway.base import repr_text
from headway.errors import FieldConflict, InvalidArgument
from headway.fields._owners import Owners, Request, check_manager, owners_in, put_owners, sorted_paths
from headway.fields._places import State, known_place, place_of
from headway.protobuf import Payload, equal, has_unknown_fields, keep_unknown_fields
from headway.resource import FIELD_OWNERS, FINALIZERS, Resource, quoted

T = TypeVar("T", bound=Payload)

MAX_PATHS = 1000
"""The maximum number of fields that a manager applies to a resource."""

MAX_OWNED = 4 * MAX_PATHS
"""The maximum number of fields that all managers of a resource own. Each apply looks at all of them."""

_SHOWN = 5


class Merged(NamedTuple, Generic[T]):
    """The result of applying fields to a resource.

    Attributes:
        current: the stored resource; None if there is none yet.
        resource: the resource to write, without its request.
        request: says who owns what afterwards.
        owners: the owners of fields other than the manager.
        owns_already: True if the stored owners are right already.
    """

    current: Resource[T] | None
    resource: Resource[T]
    request: Request
    owners: Owners
    owns_already: bool

    def changes_nothing(self, after: Resource[T]) -> bool:
        """Return True if there is nothing to write. ``after`` is what the server makes of the resource to write."""
        current = self.current
        if current is None or not equal(current.data, after.data) or current.metadata != after.metadata:
            return False
        # The owners of a resource that is being deleted stay as they are.
        return self.owns_already or current.is_deleting

    def taken(self, after: Resource[T]) -> list[tuple[str, str]]:
        """Return the other managers whose fields would change, with the paths of these fields."""
        if self.current is None or not self.owners:
            return []
        left, right, type = State.of(self.current), State.of(after), after.type
        return [
            (manager, path)
            for manager, paths in self.owners.items()
            for path in paths
            if (place := known_place(type, path)) is not None and not place.same(left, right)
        ]

    def check(self, after: Resource[T]) -> None:
        """Raise FieldConflict if a field of another manager would change."""
        if found := self.taken(after):
            named = [f"{_shown(path)} belongs to {_shown(manager)}" for manager, path in found[:_SHOWN]]
            more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
            raise FieldConflict(
                f"{after.id}: {', '.join([*named, *more])}: leave it out, apply the same value, or take it over with "
                "force=True",
                found,
            )

    def stored(self, after: Resource[T]) -> Resource[T]:
        """Return the resource as it will be stored, with the owners of its fields, except for what the store sets."""
        made, taken = after.copy(), set(self.taken(after))
        owners = {
            manager: [path for path in paths if (manager, path) not in taken] for manager, paths in self.owners.items()
        }
        put_owners(made.type, made.metadata, owners | {self.request.manager: self.request.paths})
        return made

    def to_write(self) -> Resource[T]:
        """Return the resource to write, with the request."""
        made = self.resource.copy()
        made.metadata[FIELD_OWNERS] = self.request.text()
        return made


def _shown(name: str) -> str:
    """Return a path or a manager as errors show it: as it is, if it is printable."""
    return name if name.isprintable() else quoted(name)


class Applied(Generic[T]):
    """A resource and the paths of the fields in it that a manager applies.

    Raises:
        InvalidArgument: an argument is invalid.
    """

    def __init__(self, resource: Resource[T], fields: Iterable[str], manager: str, *, force: bool = False) -> None:
        type = resource.type
        is_list = isinstance(cast("object", fields), Iterable) and not isinstance(fields, str)
        listed = [*fields] if is_list else []
        if not is_list or not all(isinstance(each, str) for each in listed):
            raise InvalidArgument(f"fields must be a list of paths, such as ['size'], not {repr_text(fields)}")
        if not type.owned_fields:
            raise InvalidArgument(
                f"fields={repr_text(listed)}: {type.name} keeps no owners: declare it with owned_fields=True, or apply "
                "the whole resource"
            )
        if len(listed) > MAX_PATHS:
            raise InvalidArgument(f"fields has {len(listed)} paths: it must have at most {MAX_PATHS}")
        check_manager(manager)
        self.resource, self.manager, self.force = resource, manager, force
        self.paths = sorted_paths(listed)
        self._given = State.of(resource)
        for path in self.paths:
            if place_of(type, path).is_missing(self._given):
                raise InvalidArgument(f"field {quoted(path)} is not in the resource: set it there, or leave it out")

    def over(self, current: Resource[T] | None) -> Merged[T]:
        """Return what the apply makes of the stored resource, or of none.

        Raises:
            PayloadError: the stored payload does not decode.
        """
        type = self.resource.type
        empty = State.empty(type)
        before, after = (empty, State.empty(type)) if current is None else (State.of(current), State.of(current))
        owners = owners_in(type, before.metadata)
        own = owners.pop(self.manager, [])
        # A newer program owns them under this name. This one can neither list nor remove them.
        unknown = [path for path in own if known_place(type, path) is None]
        listed = set(self.paths)
        for path in own:
            if path not in listed and (place := known_place(type, path)) is not None:
                place.put(after, empty)
        for path in [path for paths in owners.values() for path in paths]:
            if (place := known_place(type, path)) is not None:
                # It may be within a field that was given up just now.
                place.put(after, before)
        for path in self.paths:
            place_of(type, path).put(after, self._given, around=True)
        if has_unknown_fields(before.payload):
            keep_unknown_fields(after.payload, before.payload)
        made = self._created(after) if current is None else current.copy()
        made.data, made.metadata = after.payload, after.metadata
        paths = sorted_paths([*self.paths, *unknown])
        request = Request("" if current is None else current.version, type.name.version, self.manager, paths)
        return Merged(current, made, request, owners, owns_already=paths == own)

    def _created(self, after: State) -> Resource[T]:
        """Return a new resource with the given id, owner and finalizers. The last are put into the state."""
        message = self.resource.message()
        if FINALIZERS in message.metadata:
            after.metadata[FINALIZERS] = message.metadata[FINALIZERS]
        message.version = message.generation = ""
        message.status = {}
        return self.resource.type.view(message)
