"""The names in answers. A `Ref` is a resource, or all of a type if it has no name. No I/O."""

from __future__ import annotations

from headway._gen.headway.observe.v1 import Ref
from headway.resource import DEFAULT_UNIT, Key, ResourceId, TypeName


def ref_of(type: TypeName, key: Key) -> Ref:
    """Return the reference to a key of a type."""
    return Ref(str(type), *key)


def kind_of(ref: Ref) -> str:
    """Return the type without its group and version."""
    return ref.type.rpartition(".")[2]


def id_of(ref: Ref) -> ResourceId:
    """Return the reference as an id, without uid."""
    group, version, kind = ref.type.split(".")
    return ResourceId(TypeName(group, version, kind), ref.name, ref.partition, ref.namespace)


def ref_text(ref: Ref) -> str:
    """Return the reference for people, such as ``Team sales/core``."""
    units = [] if ref.partition in ("", DEFAULT_UNIT) else [ref.partition]
    if units or ref.namespace not in ("", DEFAULT_UNIT):
        units.append(ref.namespace)
    return f"{kind_of(ref)} {'/'.join(filter(None, (*units, ref.name)))}".rstrip()


def short_name(function: str) -> str:
    """Return a name of a function for people: without the functions that it is nested in."""
    return function.rpartition("<locals>.")[2]
