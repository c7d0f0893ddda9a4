"""Which kinds of a field read the values of which other ones as they were written. Pure."""

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
"""By kind those besides itself whose every value it reads as that value: the wider integers."""
_WORDS = {_SHAPE.REPEATED: "list of {}", _SHAPE.MAP: "map of {key} to {}"}


def reads(now: types_pb.Field, before: types_pb.Field) -> bool:
    """Return True if a field reads every value that was written as another one. What messages hold is not compared."""
    if _listed(now) != _listed(before) or now.key_kind != before.key_kind:
        return False
    return now.kind == before.kind or before.kind in _ALSO_READS.get(now.kind, ())


def words(field: types_pb.Field) -> str:
    """Return what a field holds, as an error says it: ``list of string``."""
    return _WORDS.get(field.shape, "{}").format(field.kind, key=field.key_kind)


def _listed(field: types_pb.Field) -> types_pb.Shape:
    # Whether a single value may be absent makes no difference on the wire.
    return _SHAPE.SINGLE if field.shape is _SHAPE.OPTIONAL else field.shape
