"""List and ListByOwner, and the metadata filter of a List."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from headway.api import MAX_PAGE, Call, metadata_terms
from headway.base import give_way
from headway.errors import HistoryCompacted, InvalidArgument, Unavailable
from headway.resource import (
    EndOfSnapshot,
    Position,
    Scope,
    SnapshotChunk,
    name_problem,
    pb,
    position,
    selected,
    selector_problem,
    type_name,
    type_problem,
)
from headway.rpc import Encoded
from headway.service._access import AccessChecks
from headway.service._admission import Type, admit_id, resolve
from headway.service._bounds import check_prefix, check_text
from headway.service._context import Context
from headway.service._forms import Ready, View, are_stored_as
from headway.service._pages import TURN, ListReply, PageTokens, read_page
from headway.service._position import check_known, check_position, check_revision
from headway.storage import Backend, Within, open_watch, owned_parts

_PAGES = "ask for pages (page_size), or for less by name_prefix (--prefix); or watch the type, which comes in pieces"
_BY_TYPE = "list or watch the types that it owns, and look for its uid in their owners"


async def list_type(context: Context, call: Call, request: pb.ListRequest) -> pb.ListResponse | Encoded:
    """Return the resources of a type within a tenancy, or one page of them, filtered by name and metadata.

    Resources that are stored as another version of the kind, and cannot be shown as this one, are left out. The result
    is a consistent snapshot of one revision.
    """
    backend, access = context.backend, context.access
    collected = ListReply(call, _PAGES, context)
    type = resolve(access, request.type, "type")
    if request.tenancy is None:
        raise InvalidArgument("tenancy is required; its units may be '*' for any")
    within = admit_within(type, request.tenancy, request.name_prefix, absent_is_any=False)
    access.check_list(type.name, within)
    terms = metadata_terms(request.metadata_filter)
    if not 0 <= request.page_size <= MAX_PAGE:
        raise InvalidArgument(
            f"page_size {request.page_size} must be from 1 to {MAX_PAGE}, or 0 for everything at once"
        )
    form = context.forms.of(type)
    view = form.view

    def wanted(resource: pb.Resource) -> pb.Resource | None:
        if not all(term(resource.metadata) for term in terms):
            return None
        seen = view(resource)
        return seen if seen is not None and access.shows(seen) else None

    next_page = ""
    if request.page_size or request.page_token:
        query = f"{type.name} {within} {request.metadata_filter}"
        tokens = PageTokens(backend, query, "send the same type, tenancy, prefix and filter with it")
        next_page, here = await read_page(backend, type.kind, within, tokens, request, wanted, collected, form.ready)
    else:
        if selector_problem("metadata_filter", request.metadata_filter) is None:
            # The store reads less. The terms are compared in any case.
            within = within._replace(metadata=selected(request.metadata_filter))
        # Where nothing is hidden or filtered, resources need no look each, unless they are of another version.
        version = None if terms or access.restricted else type.name.version
        here = await _read_cut(backend, type.kind, within, wanted, collected, version, form.ready)
    check_revision(here, request.min_revision)
    # A watch may resume after this position.
    at = here._replace(versions=access.contained(type.name, form.contained))
    return collected.reply(pb.ListResponse(position=at.message(), next_page_token=next_page))


async def _read_cut(
    backend: Backend,
    kind: tuple[str, str],
    within: Within,
    wanted: View,
    collected: ListReply,
    version: str | None,
    ready: Ready | None,
) -> Position:
    """Keep all wanted resources of one revision, ordered by key, and return its position.

    All resources that are stored as ``version`` are wanted, as they are.
    """
    # The start of a watch is a consistent snapshot in chunks, so unwanted resources need not be held in memory.
    watch = await open_watch(backend, kind, within)
    sorted_by_store = True
    with closing(watch), _compacted_refused():
        while True:
            async with collected.read():
                item = await watch.next()
                if isinstance(item, SnapshotChunk):
                    sorted_by_store = sorted_by_store and item.in_order
                    if version is not None and are_stored_as(item.resources, version):
                        collected.add_all(item.resources)
                        await give_way()
                    else:
                        await _collect(item.resources, wanted, collected, ready)
                elif isinstance(item, EndOfSnapshot):
                    break
                # It is not needed while this list waits for its next turn.
                del item
    if not sorted_by_store:
        await collected.sort()
    return item.position


@contextmanager
def _compacted_refused() -> Iterator[None]:
    """Turn HistoryCompacted into Unavailable: a list resumes nothing, and its caller can only repeat it."""
    try:
        yield
    except HistoryCompacted as error:
        raise Unavailable(str(error)) from error


async def _collect(
    resources: Sequence[pb.Resource], wanted: View, collected: ListReply, ready: Ready | None = None
) -> None:
    for index, resource in enumerate(resources, 1):
        if ready is not None:
            await ready(resource)
        if (seen := wanted(resource)) is not None:
            collected.add(seen)
        if index % TURN == 0:
            await give_way()


def admit_within(type: Type, tenancy: pb.Tenancy | None, name_prefix: str, *, absent_is_any: bool) -> Within:
    """Return the range of resources that a List or WatchList covers; ``*`` stands for any partition or namespace."""
    if tenancy is None and absent_is_any:
        partition, namespace = ("*", "*") if type.scope is not Scope.CLUSTER else ("", "")
    else:
        tenancy = tenancy or pb.Tenancy()
        default_partition, default_namespace = type.default_units
        partition = tenancy.partition or default_partition
        namespace = tenancy.namespace or default_namespace
    for field, unit in (("partition", partition), ("namespace", namespace)):
        if unit not in ("", "*") and (problem := name_problem(field, unit)):
            raise InvalidArgument(f"tenancy of {type.name}: {problem}")
    check_prefix(name_prefix)
    if type.scope is Scope.CLUSTER:
        if (partition, namespace) not in (("", ""), ("*", "*")):
            raise InvalidArgument(
                f"tenancy of {type.name}: partition {partition!r} and namespace {namespace!r} must be empty: "
                "the type is cluster-scoped"
            )
        return Within("*", "*", name_prefix)
    if type.scope is Scope.PARTITION:
        if namespace not in ("", "*"):
            raise InvalidArgument(
                f"tenancy of {type.name}: namespace {namespace!r} must be empty: the type is partition-scoped"
            )
        namespace = "*"
    return Within(partition, namespace, name_prefix)


async def list_by_owner(
    context: Context, call: Call, request: pb.ListByOwnerRequest
) -> pb.ListByOwnerResponse | Encoded:
    """Return all resources of every type that this incarnation of an owner owns. The owner may be deleted already.

    Each is returned as it is stored, or as the first of its forms that the caller may read, if it has several.
    """
    backend, access, forms = context.backend, context.access, context.forms
    collected = ListReply(call, _BY_TYPE, context)
    requested = request.owner
    _admit_owner(access, requested)
    assert requested is not None
    access.check_read(requested)
    if not requested.uid:
        raise InvalidArgument("owner.uid is required: ownership is by incarnation; read the owner first")
    check_position(request.known, "known")

    def wanted(resource: pb.Resource) -> pb.Resource | None:
        if not _names_owner(requested, resource.owner):
            return None
        return next((each for each in forms.views(resource) if access.shows(each)), None)

    with _compacted_refused():
        owned, here = await owned_parts(backend, requested.uid)
        await check_known(backend, ("", ""), position(request.known))
        while True:
            async with collected.read():
                part = await owned.next()
                await _collect(part, wanted, collected)
                if not part:
                    break
                del part
    return collected.reply(pb.ListByOwnerResponse(position=here.message()))


def _names_owner(requested: pb.Id, stored: pb.Id | None) -> bool:
    """Return True if the request names the stored owner of this uid, in any version of its kind.

    A uid under another name or in another tenancy owns nothing. Units that the request leaves out match any,
    because they are filled in only for registered types.
    """
    assert stored is not None
    requested_in, stored_in = requested.tenancy or pb.Tenancy(), stored.tenancy or pb.Tenancy()
    return (
        requested.name == stored.name
        and type_name(requested.type).unversioned == type_name(stored.type).unversioned
        and (not requested_in.partition or requested_in.partition == stored_in.partition)
        and (not requested_in.namespace or requested_in.namespace == stored_in.namespace)
    )


def _admit_owner(access: AccessChecks, owner: pb.Id | None) -> None:
    name = type_name(owner.type if owner is not None else None)
    if owner is None or name in access.registry or type_problem(*name):
        admit_id(access, owner, "owner")
        return
    access.check_known(name)
    check_text("owner.uid", owner.uid)
    if problem := name_problem("name", owner.name):
        # The type need not be registered: ownership goes by the uid.
        raise InvalidArgument(f"owner of {name}: {problem}")
