"""The owners of fields as the service keeps them: true at every write, in every version of the kind."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, cast

from typing_extensions import override

from headway.base import Steps, in_slices
from headway.errors import InvalidArgument, PayloadError
from headway.fields._merge import MAX_OWNED, MAX_PATHS
from headway.fields._owners import Owners, Request, check_manager, owners_in, put_owners, request_in
from headway.fields._places import State, known_place, place_of
from headway.protobuf import decoding
from headway.resource import FIELD_OWNERS, Kind, Registry, ResourceType, is_marked, is_unreadable, pb, resource_id
from headway.service import Form, Forms, Update, check_metadata

Type = ResourceType[Any]


def with_owners(forms: Forms, registry: Registry) -> Forms:
    """Return the forms of types of which some have owned fields. Without any, they are the given ones."""
    owned = {type.kind: type for type in registry if type.owned_fields}
    return _OwnedForms(forms, owned) if owned else forms


class _OwnedForms(Forms):
    def __init__(self, inner: Forms, owned: dict[Kind, Type]) -> None:
        self._inner = inner
        self._owned = owned

    @override
    def of(self, type: Type) -> Form:
        form = self._inner.of(type)
        owned = self._owned.get(type.kind)
        if owned is None:
            return form
        return cast("Form", _OwnedForm(form, owned, form if owned is type else self._inner.of(owned)))

    @override
    def views(self, stored: pb.Resource) -> Iterable[pb.Resource]:
        return self._inner.views(stored)


class _OwnedForm:
    """The form of a type whose kind has owned fields. Only what it stores differs from the form around which it is.

    Args:
        form: the form of the writer's type.
        owned: the type of the kind whose fields have owners.
        shown: its form.
    """

    def __init__(self, form: Form, owned: Type, shown: Form) -> None:
        self._form = form
        self._owned = owned
        self._shown = shown

    def __getattr__(self, name: str) -> Any:
        return getattr(self._form, name)

    async def created(self, resource: pb.Resource) -> pb.Resource:
        """Return a new resource as it will be stored."""
        request = await in_slices(self._request(resource, "", Owners()))
        made = await self._form.created(resource)
        self._put(made, {} if request is None else {request.manager: request.paths})
        return made

    def replaced(self, stored: pb.Resource, resource: pb.Resource, update: Update) -> Steps[pb.Resource]:
        """Return what a write stores in place of a resource."""
        owners = owners_in(self._owned, stored.metadata)
        request = yield from self._request(resource, stored.version, owners)
        given = copy.copy(resource)
        given.metadata = {key: text for key, text in resource.metadata.items() if key != FIELD_OWNERS}
        if FIELD_OWNERS in stored.metadata:
            given.metadata[FIELD_OWNERS] = stored.metadata[FIELD_OWNERS]
        made = yield from self._form.replaced(stored, given, update)
        if is_marked(made.metadata) or (request is None and FIELD_OWNERS not in made.metadata):
            return made
        if request is not None:
            owners.pop(request.manager, None)
        owners = yield from self._kept(owners, stored, made)
        if request is not None:
            owners[request.manager] = request.paths
            if (count := sum(map(len, owners.values()))) > MAX_OWNED:
                raise InvalidArgument(
                    f"{resource_id(stored.id)}: all managers would own {count} fields: they must own at most "
                    f"{MAX_OWNED}. Own a whole message or map in place of its parts"
                )
        self._put(made, owners)
        return made

    def _request(self, resource: pb.Resource, stored_version: str, owners: Owners) -> Steps[Request | None]:
        """Return the request of a write over a stored version, or None. Refuse an invalid one."""
        request = request_in(resource.metadata)
        if request is None or request.based_on != stored_version:
            return None
        owned, name = self._owned, resource_id(resource.id)
        if request.version != owned.name.version or self._form.type is not owned:
            raise InvalidArgument(
                f"{name}: fields of {self._form.type.name.version} cannot have owners here: this program keeps them "
                f"for the fields of {owned.name}, so apply them as that type"
            )
        check_manager(request.manager)
        own, asked = set(owners.get(request.manager, ())), set(request.paths)
        if len(asked) < len(request.paths):
            raise InvalidArgument(f"{name}: the fields of {request.manager} must be listed once each")
        if len(asked) > MAX_PATHS + len(own):
            raise InvalidArgument(f"{name}: {request.manager} must own at most {MAX_PATHS} fields")
        for path in request.paths:
            yield
            if path not in own:
                place_of(owned, path)
        return request

    def _kept(self, owners: Owners, stored: pb.Resource, made: pb.Resource) -> Steps[Owners]:
        """Return the owners whose fields a write leaves as they are."""
        if not owners:
            return owners
        # The view keeps what it has converted with the resource, which still gets its version.
        before, after = (yield from self._state(stored)), (yield from self._state(copy.copy(made)))
        if before is None or after is None:
            return {}
        kept = Owners()
        for manager, paths in owners.items():
            kept[manager] = []
            for path in paths:
                yield
                place = known_place(self._owned, path)
                if place is None or place.same(before, after):
                    kept[manager].append(path)
        return kept

    def _state(self, resource: pb.Resource) -> Steps[State | None]:
        """Return the state of a resource as the owned type, or None if it cannot be read as that."""
        shown = self._shown.view(resource)
        if shown is None or is_unreadable(shown):
            return None
        try:
            data = b"" if shown.data is None else shown.data.value
            return State((yield from decoding(self._owned.payload, data)), shown.metadata)
        except PayloadError:
            return None

    def _put(self, made: pb.Resource, owners: Owners) -> None:
        # The request keeps its own metadata, for a second attempt.
        made.metadata = dict(made.metadata)
        put_owners(self._owned, made.metadata, owners)
        check_metadata(made.metadata)
