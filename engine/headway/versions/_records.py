"""The schemas recorded in a store, one for each type that a program has opened it with. Incompatible ones are rejected.

Schemas are resources of a kind of their own. So every store keeps them, backups and copies include them, and two
programs that open a store at the same time conflict only by versions. No program can reach them through the service,
because their type is not registered.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from headway.errors import OutcomeUnknown, SchemaMismatch, SchemaProblem, Unavailable
from headway.protobuf import copy_message, decode, encode
from headway.resource import (
    AnyMessage,
    Key,
    ResourceType,
    Scope,
    described,
    is_builtin,
    pb,
    resource_key,
    type_name,
    types_pb,
)
from headway.storage import (
    MOST_OPERATIONS,
    REPLACED,
    SCHEMA_KIND,
    Backend,
    ListsResources,
    Put,
    StorageError,
    Within,
    without_mark,
)
from headway.versions._schema import compare_schemas, schema_digest, scope_problem
from headway.versions._schema_merge import merge_schemas

MOST_SEEN = 100
"""The number of schemas of one type that a store recognizes: those of the latest programs."""
MOST_BYTES = 1 << 20
"""The largest record of a type. etcd accepts 1.5 MiB in one request, and a commit can have several records."""

_PAGE = 500
_ATTEMPTS = 20
"""The number of attempts at a commit that conflicts with other programs that open the same store."""
_URL = "type.googleapis.com/headway.types.v1.SchemaRecord"
_Type = ResourceType[Any]


class SchemaPlan(NamedTuple):
    """The effect that opening a store would have.

    Attributes:
        problems: the reasons why opening would fail. Empty if it would succeed.
        changes: the records that opening would write, by the names of their types.
        replaced: the types whose schema replaces an incompatible one, with the last revision before that.
    """

    problems: list[SchemaProblem]
    changes: dict[str, types_pb.SchemaRecord]
    replaced: dict[str, int]


async def read_schemas(backend: ListsResources) -> dict[str, types_pb.SchemaRecord]:
    """Return the recorded schemas by the names of their types. A store that no program has opened has none."""
    return {name: record for name, (record, _) in (await _records(backend)).items()}


async def plan_schemas(backend: ListsResources, types: Iterable[_Type]) -> SchemaPlan:
    """Compare the types of a program with the recorded schemas. Writes nothing."""
    return await _planned(backend, list(types), await read_schemas(backend))


async def record_schemas(backend: Backend, types: Iterable[_Type]) -> Mapping[str, int]:
    """Record in a store the types of a program that opens it.

    Return the types whose schema has replaced an incompatible one, by name, with the last revision before that. Up to
    this revision the history has resources that the program would misread.

    Raises:
        SchemaMismatch: the program would misread stored resources. Nothing was changed.
        Unavailable: other programs that open the store kept changing the records.
    """
    types = list(types)
    for _ in range(_ATTEMPTS):
        stored = await _records(backend)
        plan = await _planned(backend, types, {name: record for name, (record, _) in stored.items()})
        if plan.problems:
            raise SchemaMismatch("the store", plan.problems)
        was = {name: resource for name, (_, resource) in stored.items()}
        puts = [_put(name, record, was.get(name), plan.replaced.get(name)) for name, record in plan.changes.items()]
        try:
            for start in range(0, len(puts), MOST_OPERATIONS):
                await backend.commit(puts[start : start + MOST_OPERATIONS])
        except (StorageError, OutcomeUnknown):
            # Another program was first, or the outcome of this commit is unknown. The stored records show it.
            continue
        replaced = {name: _replaced_at(was[name]) for type in types if (name := str(type.name)) in was}
        return {name: revision for name, revision in (replaced | plan.replaced).items() if revision}
    raise Unavailable("the schemas could not be recorded: other programs that open the store kept changing them")


async def _planned(
    backend: ListsResources, types: Iterable[_Type], records: dict[str, types_pb.SchemaRecord]
) -> SchemaPlan:
    plan = SchemaPlan([], {}, {})
    for type in sorted(types, key=lambda each: each.name):
        if is_builtin(type):
            continue
        name, declared = str(type.name), described(type)
        digest = schema_digest(declared)
        problems = await _scope_problems(backend, type, records)
        record = known = records.get(name)
        if record is not None and not problems and _scope_in(record) not in (None, type.scope.value):
            # No resource of the kind is stored. A program with the old scope must be compared again when it comes back.
            record = None
        if record is not None and digest in record.seen and not problems:
            continue
        schema = declared
        if record is not None and record.schema is not None:
            differences = compare_schemas(record.schema, declared)
            if differences and await _is_stored(backend, type):
                # Both comparisons include the scope: the one with stored resources, and the one with the record.
                problems += [each for each in differences if each not in problems]
            elif all(each.missing for each in differences):
                schema = merge_schemas(record.schema, declared)
            else:
                # No resource of the type is stored, so none can be misread. Forget the schemas of earlier programs.
                record = None
        seen = [*(record.seen if record is not None else ()), digest]
        changed = types_pb.SchemaRecord(schema=schema, seen=seen[-MOST_SEEN:])
        problems = problems or _size_problems(name, changed)
        if problems:
            plan.problems.extend(problems)
            continue
        if record is None and known is not None:
            # The history has resources of the earlier schema, such as those that were deleted.
            plan.replaced[name] = await _revision(backend)
        plan.changes[name] = changed
    return plan


def _size_problems(name: str, record: types_pb.SchemaRecord) -> list[SchemaProblem]:
    """Return a problem if the record is larger than every store accepts.

    It describes each place of the payload. So messages that contain each other multiply, if programs put different
    cycles of them at one place.
    """
    size = len(encode(record))
    if size <= MOST_BYTES:
        return []
    return [
        SchemaProblem(
            name,
            "",
            0,
            f"expected a record of at most {MOST_BYTES} bytes of the schemas of all programs, got {size} bytes",
            "keep the nested messages of the earlier programs, or declare a new version of the type",
        )
    ]


# --- Stored resources of a type ----------------------------------------------


async def _scope_problems(
    backend: ListsResources, type: _Type, records: dict[str, types_pb.SchemaRecord]
) -> list[SchemaProblem]:
    """Return a problem if resources of the kind are stored in another scope. They could not be read or deleted.

    All versions of a kind have the same scope. If no scope is recorded, the tenancy of a resource shows it.
    """
    scopes = {record.schema.types[0].scope for record in records.values() if record.schema and _is_of(record, type)}
    if scopes == {types_pb.Scope(type.scope.value)}:
        return []
    found, _ = await backend.list(type.kind, Within(), limit=1)
    if not found or (was := _scope_of(found[0])) is type.scope:
        return []
    return [scope_problem(str(type.name), was.name, type.scope.name)]


def _scope_in(record: types_pb.SchemaRecord) -> types_pb.Scope | None:
    return None if record.schema is None else record.schema.types[0].scope


def _is_of(record: types_pb.SchemaRecord, type: _Type) -> bool:
    return record.schema is not None and type_name(record.schema.types[0].type).unversioned == type.kind


def _scope_of(resource: pb.Resource) -> Scope:
    tenancy = resource.id.tenancy if resource.id is not None else None
    if tenancy is None or not tenancy.partition:
        return Scope.CLUSTER
    return Scope.NAMESPACE if tenancy.namespace else Scope.PARTITION


async def _is_stored(backend: ListsResources, type: _Type) -> bool:
    """Return True if at least one stored resource has this version of its kind."""
    after: Key | None = None
    while True:
        page, _ = await backend.list(type.kind, Within(), after=after, limit=_PAGE)
        if any(each.id is not None and type_name(each.id.type) == type.name for each in page):
            return True
        if len(page) < _PAGE:
            return False
        after = resource_key(page[-1])


# --- Records -----------------------------------------------------------------


async def _records(backend: ListsResources) -> dict[str, tuple[types_pb.SchemaRecord, pb.Resource]]:
    found, _ = await backend.list(SCHEMA_KIND, Within())
    return {resource_key(each)[2]: (decode(types_pb.SchemaRecord, _data(each)), each) for each in found}


async def _revision(backend: ListsResources) -> int:
    _, here = await backend.list(SCHEMA_KIND, Within(), limit=1)
    return here.revision


def _replaced_at(stored: pb.Resource) -> int:
    """Return the last revision before the schema of a record replaced another one. 0 if it has not, or not here.

    A copy of the store that an earlier Headway made has the mark of its source, but revisions of its own. There the
    record is usually below the mark.
    """
    revision = int(stored.metadata.get(REPLACED, "0"))
    return revision if revision <= int(stored.version) else 0


def _put(name: str, record: types_pb.SchemaRecord, stored: pb.Resource | None, replaced: int | None) -> Put:
    type = pb.Type(group=SCHEMA_KIND[0], group_version="v1", kind=SCHEMA_KIND[1])
    made = pb.Resource(id=pb.Id(uid=uuid.uuid4().hex, name=name, type=type, tenancy=pb.Tenancy()))
    if stored is not None:
        made = without_mark(stored) if _replaced_at(stored) == 0 else copy_message(stored)
    made.data = AnyMessage(type_url=_URL, value=encode(record))
    made.version = ""
    if replaced is not None:
        made.metadata[REPLACED] = str(replaced)
    return Put(SCHEMA_KIND, ("", "", name), made, "" if stored is None else stored.version)


def _data(resource: pb.Resource) -> bytes:
    return resource.data.value if resource.data is not None else b""
