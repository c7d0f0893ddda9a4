"""The checks of a resource that another store sends, to be kept here as a copy."""

from __future__ import annotations

from collections.abc import Callable

from headway.api import MAX_TEXT
from headway.base import finished, reason_text
from headway.errors import HeadwayError
from headway.protobuf import payload_problem
from headway.resource import Registry, check_answer, pb, redact_error, resource_id
from headway.service import AccessChecks, admit_id, check_metadata, check_payload, check_statuses, check_text


def received_check(registry: Registry) -> Callable[[pb.Resource], str | None]:
    """Return a function that returns why a resource cannot be kept here, or None if it can.

    The function checks names, bounds and the payload, and calls the type's validate hook. It completes the id in place,
    which then shares its type with all ids of that type. It does not call the mutate hook: a copy equals its original.
    """
    access = AccessChecks(None, registry)

    def check(resource: pb.Resource) -> str | None:
        try:
            namespace = "" if resource.id is None or resource.id.tenancy is None else resource.id.tenancy.namespace
            type, key = admit_id(access, resource.id, "id")
            if key[1] != namespace:
                return f"its namespace is {namespace!r}, but the type is {type.scope.name.lower()}-scoped here"
            check_text("generation", resource.generation)
            if resource.id is not None:
                check_text("id.uid", resource.id.uid)
            if resource.metadata:
                check_metadata(resource.metadata)
            if resource.status:
                check_statuses(resource.status)
            data = resource.data
            if data is not None:
                name = data.type_url[-MAX_TEXT:].rpartition("/")[2]
                if name not in (type.type_url.rpartition("/")[2], type.former_name):
                    return f"its payload is {name or '(no type)'}, not {type.type_url.rpartition('/')[2]}"
                data.type_url = type.type_url
                finished(check_payload(type, data.value))
                if (problem := payload_problem(type.payload, data.value)) is not None:
                    return f"its payload does not decode here: {problem}"
            if type.hooks.validate is not None:
                view = type.view(resource)
                try:
                    check_answer("validate", type.hooks.validate, view, type.hooks.validate(view))
                except Exception as error:  # noqa: BLE001  # a hook is the program's code
                    # The text is shown in the status of the peering, and is sent to the peer.
                    redact_error(error, [type.view(resource), view])
                    if isinstance(error, ValueError):
                        return reason_text(error)
                    return f"the validate hook of {resource_id(resource.id).type} failed: {reason_text(error)}"
        except HeadwayError as error:
            return str(error)
        return None

    return check
