"""The identity of a resource: type names, ids, keys, uids of new resources, rules for names, and reserved metadata."""

from __future__ import annotations

import enum
import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping, MutableMapping
from typing import NamedTuple

from ulid_transform import ulid_to_timestamp

from headway._gen.headway.resource import v1 as pb
from headway.protobuf import equal

Kind = tuple[str, str]
"""A type without its version, as (group, kind). All versions of a kind share one table and one set of names."""

Key = tuple[str, str, str]
"""The identity of a resource within its kind, as (partition, namespace, name)."""

FINALIZERS = "finalizers"
"""The metadata key of the finalizers."""

DELETION_TIMESTAMP = "deletionTimestamp"
"""The metadata key of the time at which a resource was marked for deletion."""

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class TypeName(NamedTuple):
    """The name of a type: group, group version and kind. Its string form is ``group.version.Kind``."""

    group: str
    version: str
    kind: str

    def __str__(self) -> str:
        return f"{self.group}.{self.version}.{self.kind}"

    @property
    def unversioned(self) -> Kind:
        """The name without the version, as (group, kind)."""
        return (self.group, self.kind)

    def message(self) -> pb.Type:
        """Return this name as a wire message."""
        return pb.Type(group=self.group, group_version=self.version, kind=self.kind)


def type_name(message: pb.Type | None) -> TypeName:
    """Return the name in a wire message. If the message is None, all parts of the name are empty."""
    if message is None:
        return TypeName("", "", "")
    # A call of the class would run a function of Python, as below.
    return tuple.__new__(TypeName, (message.group, message.group_version, message.kind))


class ResourceId(NamedTuple):
    """The id of a resource.

    An id with a ``uid`` refers to one incarnation of the resource. Without it, the id refers to whichever resource has
    that name.
    """

    type: TypeName
    name: str
    partition: str = ""
    namespace: str = ""
    uid: str = ""

    def __str__(self) -> str:
        if self.partition not in ("", "default"):
            # Include the namespace even if it is the default one: "a/b" alone means namespace and name.
            units = [self.partition, self.namespace] if self.namespace else [self.partition]
        else:
            units = [self.namespace] if self.namespace not in ("", "default") else []
        return f"{self.type.kind} {'/'.join([*units, self.name])}"

    @property
    def key(self) -> Key:
        """The identity within the kind, as (partition, namespace, name)."""
        return (self.partition, self.namespace, self.name)

    def without_uid(self) -> ResourceId:
        """Return this id without its uid, so that it refers to any incarnation."""
        return self._replace(uid="") if self.uid else self

    def message(self) -> pb.Id:
        """Return this id as a wire message."""
        return pb.Id(
            uid=self.uid,
            name=self.name,
            type=self.type.message(),
            tenancy=pb.Tenancy(partition=self.partition, namespace=self.namespace),
        )

    def reference(self, section: str = "") -> pb.Reference:
        """Return a reference to this resource, by name and without the uid."""
        return pb.Reference(
            type=self.type.message(),
            tenancy=pb.Tenancy(partition=self.partition, namespace=self.namespace),
            name=self.name,
            section=section,
        )


def same_owner(given: pb.Id | None, stored: pb.Id | None) -> bool:
    """Return True if an id refers to the stored owner.

    The versions of the two types may differ. If ``given`` has no uid, only the names are compared.
    """
    if given is None or stored is None or given is stored:
        return given is stored
    return (
        given.uid in ("", stored.uid)
        and given.name == stored.name
        and (given.type is stored.type or type_name(given.type).unversioned == type_name(stored.type).unversioned)
        and equal(given.tenancy, stored.tenancy)
    )


def resource_id(message: pb.Id | None) -> ResourceId:
    """Return the id in a wire message. Absent parts are empty."""
    if message is None:
        return ResourceId(TypeName("", "", ""), "")
    tenancy = message.tenancy
    if tenancy is None:
        return ResourceId(type_name(message.type), message.name, uid=message.uid)
    values = (type_name(message.type), message.name, tenancy.partition, tenancy.namespace, message.uid)
    return tuple.__new__(ResourceId, values)


def resource_key(resource: pb.Resource) -> Key:
    """Return the key of a stored resource, which always has an id and a tenancy."""
    id = resource.id
    tenancy = id.tenancy  # type: ignore[union-attr]  # stored resources have both; checked on Write
    return (tenancy.partition, tenancy.namespace, id.name)  # type: ignore[union-attr]  # as above


def created_at(uid: str) -> float:
    """Return when a resource was created, in seconds since 1970, or 0 if its uid does not say so."""
    try:
        return ulid_to_timestamp(uid) / 1000
    except ValueError:
        return 0.0


def new_create_token() -> str:
    """Return a new token for one creation. It distinguishes a retry from a creation by another writer."""
    return secrets.token_hex(16)


def uid_ending(token: str, kind: Kind, key: Key) -> str:
    """Return the last 16 characters of the uid of a resource created with a token: the random part of a ULID.

    They also depend on the name, so that a token never gives two resources the same uid. The first part of a uid is the
    time, so that a later creation with the same token gets another uid.
    """
    named = "\0".join((token, *kind, *key)).encode(errors="surrogatepass")
    number = int.from_bytes(hashlib.blake2b(named, digest_size=10).digest())
    return "".join(_DIGITS[number >> shift & 31] for shift in range(75, -1, -5))


MAX_NAME = 63
"""The maximum length of a name, of a tenancy unit, and of each part of a type's name."""

_QUOTED = 100
"""The maximum number of characters that an error quotes: a caller may send millions."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z")
_GROUP = re.compile(r"[a-z][a-z0-9_]+\Z")
_VERSION = re.compile(r"v[a-z0-9]*[0-9]\Z")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]+\Z")


def quoted(value: object) -> str:
    """Return the value as errors quote it. Long text is cut off."""
    if isinstance(value, str) and len(value) > _QUOTED:
        return f"{value[:_QUOTED]!r}…"
    return repr(value)


def text_problem(field: str, text: str, most: int) -> str | None:
    """Return the problem with a text that is not Unicode, or has too many characters, or None if there is none."""
    if len(text) > most:
        return f"{field} {quoted(text)} has {len(text)} characters: it must have at most {most}"
    return unicode_problem(field, text)


def unicode_problem(field: str, text: str) -> str | None:
    """Return the problem with a text that cannot be encoded, and so not be sent or stored, or None if it can be.

    A name of a file has half of a surrogate pair in place of each byte that is not UTF-8.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            half = text[error.start]
            return (
                f"{field} {quoted(text)} has half of a surrogate pair, {half!r}, which is not a character: replace it, "
                "as text.encode(errors='replace').decode() does"
            )
    return None


def name_problem(field: str, value: object) -> str | None:
    """Return the problem with the name of a resource or a tenancy unit, or None if it is valid.

    ``field`` is what the caller calls it.
    """
    if not isinstance(value, str):
        return f"{field} must be a string, not {value!r}"
    if not value:
        return f"{field} is required"
    if len(value) > MAX_NAME or not _NAME.match(value):
        return (
            f"{field} {quoted(value)} is not a valid name: use 1 to {MAX_NAME} lower-case letters, digits "
            "and hyphens, with a letter or digit at both ends"
        )
    return None


def type_problem(group: object, version: object, kind: object) -> str | None:
    """Return the problem with a type's name, or None if it is valid."""
    for part, value in (("group", group), ("version", version), ("kind", kind)):
        if not isinstance(value, str):
            return f"{part} must be a string, not {value!r}"
        if len(value) > MAX_NAME:
            return f"{part} {quoted(value)} must have at most {MAX_NAME} characters"
    group, version, kind = str(group), str(version), str(kind)
    if not _GROUP.match(group):
        return f"group {group!r} must be snake_case and at least two characters, such as 'staff' or 'my_group'"
    if not _VERSION.match(version):
        return f"version {version!r} must be 'v', optional lower-case letters and a number, such as 'v1' or 'v2beta1'"
    if not _KIND.match(kind):
        return f"kind {kind!r} must be PascalCase and at least two characters, such as 'Team'"
    return None


class Scope(enum.Enum):
    """The scope of a type: the tenancy units that its resources have. The values are those on the wire.

    Only tombstones have the scope UNDEFINED: they take the tenancy of their owner, in any scope.
    """

    UNDEFINED = 0
    CLUSTER = 1
    PARTITION = 2
    NAMESPACE = 3


DEFAULT_TENANCY = {
    Scope.UNDEFINED: ("", ""),
    Scope.CLUSTER: ("", ""),
    Scope.PARTITION: ("default", ""),
    Scope.NAMESPACE: ("default", "default"),
}


def tenancy_within(scope: Scope, given: tuple[str, str], parent: tuple[str, str]) -> tuple[str, str]:
    """Return the complete (partition, namespace) of a reference.

    An empty unit is inherited from the parent, or else gets the scope's default. The namespace is inherited only if the
    partition equals the parent's. Units that the scope doesn't have are always empty.

    Args:
        scope: the scope of the referenced type.
        given: the units in the reference; they may be empty.
        parent: the units of the resource that contains the reference.
    """
    default_partition, default_namespace = DEFAULT_TENANCY[scope]
    if scope is Scope.UNDEFINED:
        return given
    partition = (given[0] or parent[0] or default_partition) if default_partition else ""
    inherited = parent[1] if partition == parent[0] else ""
    return partition, (given[1] or inherited or default_namespace) if default_namespace else ""


def finalizers(metadata: Mapping[str, str]) -> frozenset[str]:
    """Return the finalizers of a resource."""
    return frozenset(metadata.get(FINALIZERS, "").split())


def set_finalizers(metadata: MutableMapping[str, str], names: Iterable[str]) -> None:
    """Replace the finalizers. The stored names are sorted, so that equal sets have equal bytes."""
    text = " ".join(sorted(set(names)))
    if text:
        metadata[FINALIZERS] = text
    else:
        metadata.pop(FINALIZERS, None)


def is_marked(metadata: Mapping[str, str]) -> bool:
    """Return True if the resource is marked for deletion."""
    return DELETION_TIMESTAMP in metadata
