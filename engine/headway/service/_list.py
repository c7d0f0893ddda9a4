"""List and ListByOwner."""

from __future__ import annotations

from headway.resource import Registry, name_problem, pb, position, type_name, type_problem
from headway.service._access import Access
from headway.service._admission import admit_id, admit_within, resolve
from headway.service._known import check_known
from headway.service._metadata_filter import metadata_terms
from headway.service._page import Pages
from headway.service._read import check_revision
from headway.service._refusals import STORE_ERRORS, invalid, refusal
from headway.storage import Backend


async def list_type(backend: Backend, registry: Registry, access: Access, request: pb.ListRequest) -> pb.ListResponse:
    """The resources of a type within a tenancy, all or a page of them, by their names and metadata.

    Those stored as another version of the kind are left out.
    """
    type = resolve(registry, request.type, "type")
    if request.tenancy is None:
        raise invalid("tenancy is required; its units may be '*' for any")
    within = admit_within(type, request.tenancy, request.name_prefix, absent_is_any=False)
    terms = metadata_terms(request.metadata_filter)
    access.check_list(type.name, within)
    version = type.name.version

    def wanted(resource: pb.Resource) -> bool:
        return (
            resource.id.type.group_version == version  # type: ignore[union-attr]  # stored ids are whole
            and all(term(resource.metadata) for term in terms)
            and access.shows(resource)
        )

    pages = Pages(backend, type.kind, within, f"{type.name} {within} {request.metadata_filter}")
    try:
        resources, next_page, here = await pages.read(request.page_size, request.page_token, wanted)
    except STORE_ERRORS as error:
        raise refusal(error) from error
    check_revision(here, request.min_revision)
    return pb.ListResponse(resources=resources, position=here.message(), next_page_token=next_page)


async def list_by_owner(
    backend: Backend, registry: Registry, access: Access, request: pb.ListByOwnerRequest
) -> pb.ListByOwnerResponse:
    """All resources that this incarnation of an owner owns, of every type; the owner need not be there any more."""
    _admit_owner(registry, request.owner)
    assert request.owner is not None
    if not request.owner.uid:
        raise invalid("owner.uid is required: ownership is by incarnation; read the owner first")
    access.check_read(request.owner)
    try:
        owned, here = await backend.list_by_owner(request.owner.uid)
        await check_known(backend, ("", ""), position(request.known))
    except STORE_ERRORS as error:
        raise refusal(error) from error
    owned_by_it = [each for each in owned if _names_owner(request.owner, each.owner)]
    return pb.ListByOwnerResponse(resources=access.shown(owned_by_it), position=here.message())


def _names_owner(asked: pb.Id, stored: pb.Id | None) -> bool:
    """Return True if the request names the owner that is stored with this uid, in whatever version of its kind.

    A uid under another name or in another tenancy owns nothing. Units that the request leaves out are any: they are
    filled in where the type is registered.
    """
    assert stored is not None
    asked_in, stored_in = asked.tenancy or pb.Tenancy(), stored.tenancy or pb.Tenancy()
    return (
        asked.name == stored.name
        and type_name(asked.type).unversioned == type_name(stored.type).unversioned
        and (not asked_in.partition or asked_in.partition == stored_in.partition)
        and (not asked_in.namespace or asked_in.namespace == stored_in.namespace)
    )


def _admit_owner(registry: Registry, owner: pb.Id | None) -> None:
    name = type_name(owner.type if owner is not None else None)
    if owner is None or name in registry or type_problem(*name):
        admit_id(registry, owner, "owner")
    elif problem := name_problem("name", owner.name):
        # Its type is not registered (any more), and it is its uid that owns.
        raise invalid(f"owner of {name}: {problem}")
