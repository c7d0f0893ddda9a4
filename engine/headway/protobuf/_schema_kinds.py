"""Compatibility of field kinds: whether a field reads the values written as another kind. Pure."""

from __future__ import annotations

from headway._gen.headway.types import v1 as types_pb

_SHAPE = types_pb.Shape
_ALSO_READS: dict[str, frozenset[str]] = {
    "int32": frozenset({"bool", "enum"}),
    "uint32": frozenset({"bool"}),
    "int64": frozenset({"bool", "enum", "int32", "uint32"}),
    "uint64": frozenset({"bool", "uint32"}),
    "sint64": frozenset({"sint32"}),
    "enum": frozenset({"int32"}),
}
"""For each kind, the other kinds whose values it reads without change: an integer reads the narrower ones."""
_WORDS = {_SHAPE.REPEATED: "list of {}", _SHAPE.MAP: "map of {key} to {}"}


def reads(now: types_pb.Field, before: types_pb.Field) -> bool:
    """Return True if a field reads every value that was written as another. The content of messages is not compared."""
    if _listed(now) != _listed(before) or now.key_kind != before.key_kind:
        return False
    return now.kind == before.kind or before.kind in _ALSO_READS.get(now.kind, ())


def words(field: types_pb.Field) -> str:
    """Describe the type of a field for an error message: ``list of string``."""
    return _WORDS.get(field.shape, "{}").format(field.kind, key=field.key_kind)


def _listed(field: types_pb.Field) -> types_pb.Shape:
    # Whether a single value may be absent makes no difference on the wire.
    return _SHAPE.SINGLE if field.shape is _SHAPE.OPTIONAL else field.shape
