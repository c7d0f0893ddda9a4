"""The rules for peerings: what a Peering may contain, and that only the peerings write into their partitions."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from headway._gen.headway.peering.v1 import Export, Peering, Role
from headway.api import MAX_SUBJECTS
from headway.errors import InvalidArgument, PartitionReserved, PayloadError
from headway.peering._types import MAX_PEERING_NAME, PEERING, copies_partition, peering_of
from headway.protobuf import decode
from headway.resource import (
    PARTITION,
    Key,
    Kind,
    Registry,
    ResourceType,
    Scope,
    TypeName,
    is_builtin,
    name_problem,
    pb,
    quoted,
    type_name,
)
from headway.rpc import addresses, plain_text_host
from headway.service import AccessChecks, WriteRules, check_text

MAX_EXPORTS = MAX_SUBJECTS
"""The maximum number of exports of a peering. One subscription reads all of them."""

MAX_ADDRESSES = 16
MAX_CA = 16 << 10
"""The maximum length of a peering's certificates, in characters."""

ANY = "*"


class PeeringRules(WriteRules):
    """The rules for writes of peerings, and in the partitions that hold their copies."""

    kinds = frozenset({PEERING.kind, PARTITION.kind})

    @override
    def check_key(self, access: AccessChecks, kind: Kind, key: Key) -> None:
        """Refuse a write in a partition with copies, or of that partition, unless the peering itself writes."""
        partition = key[2] if kind == PARTITION.kind else key[0]
        peering = peering_of(partition)
        if peering and not access.privileged:
            raise PartitionReserved(
                f"partition {quoted(partition)} is reserved for the copies of peering {peering!r}, which alone writes "
                "there: change the original on the other side, or use another partition"
            )

    @override
    def admit(self, access: AccessChecks, type: ResourceType[Any], key: Key, resource: pb.Resource) -> None:
        """Refuse a Peering with an invalid field, or with an export that its writer may not read.

        Headway's own writes of a Peering keep what it contains. They must succeed, for example to delete it, even if
        this program no longer has a type that it exports.
        """
        if type.kind == PEERING.kind and not access.privileged:
            try:
                peering = _peering(resource)
            except PayloadError:
                # The checks of every payload refuse it.
                return
            check_peering(access, key[2], peering)

    @override
    def replace(
        self, access: AccessChecks, type: ResourceType[Any], key: Key, stored: pb.Resource, resource: pb.Resource
    ) -> None:
        """Refuse another role for a Peering, and another way to its peer by a caller without the right to it.

        The secrets and the stream belong to the role that it was created with.
        """
        if type.kind != PEERING.kind:
            return
        try:
            before, after = _peering(stored), _peering(resource)
        except PayloadError:
            # A payload that does not decode can only be written back as it is stored.
            return
        if after.role != before.role:
            does = "accepts" if before.role is Role.ACCEPTS else "dials"
            raise InvalidArgument(
                f"resource.data.role ROLE_{after.role.name} cannot replace ROLE_{before.role.name}: the peering {does} "
                "for as long as it exists; delete it and create another, or use another name"
            )
        if not access.privileged:
            check_redirected(access, key[2], before, after)


def check_peering(access: AccessChecks, name: str, peering: Peering) -> None:
    """Refuse a Peering with an invalid field, or with an export that its writer may not read."""
    check_peering_name(name)
    if peering.role not in (Role.ACCEPTS, Role.DIALS):
        raise InvalidArgument(
            "resource.data.role must be ROLE_ACCEPTS or ROLE_DIALS: `headway peer token` creates the first kind, "
            "`headway peer establish` the second"
        )
    check_exports(access, peering.exports, "resource.data.exports")
    check_way(peering.addresses, peering.server_name, peering.ca, "resource.data.", plain_text=peering.plain_text)
    for field in ("peer_id", "peer_name", "peer_store_id"):
        check_text(f"resource.data.{field}", getattr(peering, field))


def check_redirected(access: AccessChecks, name: str, before: Peering, after: Peering) -> None:
    """Refuse a caller who changes where an established peering connects without the right to read all of its copies.

    The dialing side presents the secret of the stream there, and whoever has that gets everything that the other side
    exports. An accepting side sends the dialing one its addresses.
    """
    if before.peer_id and _way(before) != _way(after):
        partition = copies_partition(name)
        what = f"another way to the peer needs the right to read partition {partition}, which holds its copies"
        access.check_read_all(TypeName(ANY, ANY, ANY), partition, ANY, what)


def _way(peering: Peering) -> tuple[object, ...]:
    way = (peering.addresses, peering.server_name, peering.ca, peering.plain_text)
    return (*way, peering.peer_id, peering.peer_name, peering.peer_store_id)


def _peering(resource: pb.Resource) -> Peering:
    return decode(Peering, b"" if resource.data is None else resource.data.value)


def check_peering_name(name: str, field: str = "name") -> None:
    """Refuse the name of a peering whose partition would have an invalid name."""
    if problem := name_problem(field, name):
        raise InvalidArgument(problem)
    if len(name) > MAX_PEERING_NAME:
        raise InvalidArgument(
            f"{field} {quoted(name)} must have at most {MAX_PEERING_NAME} characters, so that its partition has a "
            "valid name"
        )


def check_way(addresses_: list[str], server_name: str, ca: str, prefix: str, *, plain_text: bool) -> None:
    """Refuse invalid addresses, certificates that are not PEM, and plain text to another host."""
    if len(addresses_) > MAX_ADDRESSES:
        raise InvalidArgument(f"{prefix}addresses has {len(addresses_)} entries: it must have at most {MAX_ADDRESSES}")
    for index, text in enumerate(addresses_):
        check_text(f"{prefix}addresses[{index}]", text)
        try:
            found = addresses([text])
        except InvalidArgument as error:
            raise InvalidArgument(f"{prefix}addresses[{index}]: {error}") from None
        if plain_text and plain_text_host(found, None):
            raise InvalidArgument(
                f"{prefix}addresses[{index}] {text!r}: a secret sent to another host in plain text can be read on the "
                "way: use TLS, or a loopback address such as '127.0.0.1:9000'"
            )
    check_text(f"{prefix}server_name", server_name)
    if len(ca) > MAX_CA:
        raise InvalidArgument(f"{prefix}ca has {len(ca)} characters: it must have at most {MAX_CA}")
    if not ca:
        return
    # Imported here, because TLS takes long to import and most programs don't need it.
    from headway.rpc import client_tls_of_text

    try:
        client_tls_of_text(ca)
    except OSError as error:
        raise InvalidArgument(
            f"{prefix}ca must contain certificates in PEM, beginning with -----BEGIN CERTIFICATE-----: {error}"
        ) from None


def check_exports(access: AccessChecks, exports: list[Export], field: str) -> None:
    """Refuse an export that cannot be copied, or that the caller may not read."""
    if len(exports) > MAX_EXPORTS:
        raise InvalidArgument(
            f"{field} has {len(exports)} entries: it must have at most {MAX_EXPORTS}; export a type in all namespaces "
            "instead of in each of them"
        )
    seen: set[tuple[TypeName, str, str]] = set()
    for index, export in enumerate(exports):
        what = f"{field}[{index}]"
        if export.type is None:
            raise InvalidArgument(f"{what}.type is required, such as staff.v1.Team")
        type = _exported(access, access.registry, export.type, f"{what}.type")
        partition, namespace = _units(type, export.tenancy or pb.Tenancy(), f"{what}.tenancy")
        if (part := (type.name, partition, namespace)) in seen:
            raise InvalidArgument(f"{what} repeats an earlier export of {type.name}: remove it")
        seen.add(part)
        access.check_read_all(type.name, partition, namespace, what)


def check_kept_exports(access: AccessChecks, exports: list[Export]) -> None:
    """Refuse a caller who may not read what a peering exports already, also types that this program does not have."""
    for index, export in enumerate(exports):
        name, tenancy = type_name(export.type or pb.Type()), export.tenancy or pb.Tenancy()
        type = access.registry.find(name)
        namespace = "" if type is not None and type.scope is Scope.PARTITION else tenancy.namespace or ANY
        access.check_read_all(name, tenancy.partition or ANY, namespace, f"exports[{index}], which it keeps")


def _exported(access: AccessChecks, registry: Registry, message: pb.Type, field: str) -> ResourceType[Any]:
    name = type_name(message)
    for part in name:
        check_text(field, part)
    access.check_known(name)
    try:
        type = registry.resolve(name, access.knows)
    except InvalidArgument as error:
        raise InvalidArgument(f"{field}: {error}") from None
    if type.scope not in (Scope.PARTITION, Scope.NAMESPACE):
        raise InvalidArgument(
            f"{field} {name} cannot be exported: it is cluster-scoped, and copies are kept in a partition; export "
            "types of a partition or a namespace"
        )
    if is_builtin(type):
        raise InvalidArgument(
            f"{field} {name} cannot be exported: namespaces are created for the copies that need them"
        )
    return type


def _units(type: ResourceType[Any], tenancy: pb.Tenancy, field: str) -> tuple[str, str]:
    partition, namespace = tenancy.partition or ANY, tenancy.namespace or ANY
    for unit, value in (("partition", partition), ("namespace", namespace)):
        if value != ANY and (problem := name_problem(unit, value)):
            raise InvalidArgument(f"{field}: {problem}; or '*' for any")
    if type.scope is Scope.PARTITION:
        if namespace != ANY:
            raise InvalidArgument(f"{field}.namespace {namespace!r} must be empty: {type.name} is partition-scoped")
        namespace = ""
    if peering_of(partition):
        raise InvalidArgument(
            f"{field}.partition {partition!r} cannot be exported: it has copies from another peer, which are never "
            "passed on"
        )
    return partition, namespace
