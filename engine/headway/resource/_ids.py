"""What a resource is called: type names, ids, references and keys."""

from __future__ import annotations

from typing import NamedTuple

from headway._gen.headway.resource import v1 as pb

Kind = tuple[str, str]
"""(group, kind): a type without its version. All versions of a kind share one table and one name space."""

Key = tuple[str, str, str]
"""(partition, namespace, name): what identifies a resource within its kind."""


class TypeName(NamedTuple):
    """A type's name: group, group version and kind. Prints as ``group.version.Kind``."""

    group: str
    version: str
    kind: str

    def __str__(self) -> str:
        return f"{self.group}.{self.version}.{self.kind}"

    @property
    def unversioned(self) -> Kind:
        """(group, kind)."""
        return (self.group, self.kind)

    def message(self) -> pb.Type:
        """This name as the wire has it."""
        return pb.Type(group=self.group, group_version=self.version, kind=self.kind)


def type_name(message: pb.Type | None) -> TypeName:
    """The name in a wire message; an absent one is all empty."""
    if message is None:
        return TypeName("", "", "")
    return TypeName(message.group, message.group_version, message.kind)


class ResourceId(NamedTuple):
    """One resource. With a ``uid`` one incarnation of it; without one whatever bears the name."""

    type: TypeName
    name: str
    partition: str = ""
    namespace: str = ""
    uid: str = ""

    def __str__(self) -> str:
        if self.partition not in ("", "default"):
            # With the namespace, also when it is the default one: "a/b" alone is namespace and name.
            units = [self.partition, self.namespace] if self.namespace else [self.partition]
        else:
            units = [self.namespace] if self.namespace not in ("", "default") else []
        return f"{self.type.kind} {'/'.join([*units, self.name])}"

    @property
    def key(self) -> Key:
        """(partition, namespace, name)."""
        return (self.partition, self.namespace, self.name)

    def without_uid(self) -> ResourceId:
        """The same name, whatever its incarnation."""
        return self._replace(uid="") if self.uid else self

    def message(self) -> pb.Id:
        """This id as the wire has it."""
        return pb.Id(
            uid=self.uid,
            name=self.name,
            type=self.type.message(),
            tenancy=pb.Tenancy(partition=self.partition, namespace=self.namespace),
        )

    def reference(self, section: str = "") -> pb.Reference:
        """A reference to this resource, by name and without uid."""
        return pb.Reference(
            type=self.type.message(),
            tenancy=pb.Tenancy(partition=self.partition, namespace=self.namespace),
            name=self.name,
            section=section,
        )


def same_owner(given: pb.Id | None, stored: pb.Id | None) -> bool:
    """Return True if an id names the owner that is stored, in whatever version of its kind; without a uid, by name."""
    if given is None or stored is None:
        return given is stored
    return (
        given.uid in ("", stored.uid)
        and given.name == stored.name
        and type_name(given.type).unversioned == type_name(stored.type).unversioned
        and given.tenancy == stored.tenancy
    )


def resource_id(message: pb.Id | None) -> ResourceId:
    """The id in a wire message; absent parts are empty."""
    if message is None:
        return ResourceId(TypeName("", "", ""), "")
    tenancy = message.tenancy
    if tenancy is None:
        return ResourceId(type_name(message.type), message.name, uid=message.uid)
    return ResourceId(type_name(message.type), message.name, tenancy.partition, tenancy.namespace, message.uid)


def resource_key(resource: pb.Resource) -> Key:
    """The key of a stored resource (whose id and tenancy are always there)."""
    id = resource.id
    tenancy = id.tenancy  # type: ignore[union-attr]  # stored resources have both; checked on Write
    return (tenancy.partition, tenancy.namespace, id.name)  # type: ignore[union-attr]  # likewise
