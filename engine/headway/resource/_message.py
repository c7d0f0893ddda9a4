"""Declare a message in Python, without protoc: ``@headway.message`` and ``field``."""

import dataclasses
import inspect
import re
import sys
from abc import ABCMeta
from collections.abc import Callable, Mapping
from types import CellType, FrameType
from typing import Any, ClassVar, Never, TypeVar, cast, dataclass_transform, get_origin, overload

import betterproto2
from betterproto2.casing import camel_case, safe_snake_case

from headway._keywords import check_keywords
from headway.errors import DeclarationError
from headway.resource._annotation import Annotation, Kind, Names, evaluated, read_annotation
from headway.resource._changes import HIGHEST_NUMBER, declare_changes, is_generated
from headway.resource._declared import Declaration, DeclaredMessage, PlainEnum, scopes

T = TypeVar("T")

_RESERVED = range(19_000, 20_000)
_FULL_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
# What Python puts into every class by itself.
_OF_EVERY_CLASS = ("__dict__", "__weakref__", "__annotations__", "__annotate_func__", "__annotations_cache__")


@dataclasses.dataclass(frozen=True)
class _Field:
    number: Any
    kind: str | None
    refused: Mapping[str, object]


def field(number: int, *, kind: Kind | None = None, **refused: Never) -> Any:
    """A field of a declared message: its number, which is for ever, and how its numbers are kept.

    ``kind`` is for int (int64 unless told) and float (double unless told), in list and dict too.
    """
    return _Field(number, kind, refused)


@overload
def message(cls: type[T], /) -> type[T]: ...
@overload
def message(
    *,
    name: str | None = None,
    reserved: Mapping[int, str] | None = None,
    renamed: Mapping[int, str | tuple[str, ...]] | None = None,
) -> Callable[[type[T]], type[T]]: ...
# pyright finds `dataclass_transform` only directly above the function.
# `field` is no field specifier for type checkers: it is a default to them then, which a proto3 field has.
@check_keywords
@dataclass_transform(kw_only_default=True, eq_default=False)
def message(
    cls: type[Any] | None = None,
    /,
    *,
    name: str | None = None,
    reserved: Mapping[int, str] | None = None,
    renamed: Mapping[int, str | tuple[str, ...]] | None = None,
) -> Any:
    """Make a class with annotated fields a message: ``members: list[str] = field(1)``.

    A field can be str, int, bool, float, bytes, datetime, timedelta, an IntEnum, another message, any of them as
    ``X | None`` or in ``list[X]``, and ``dict[K, X]`` with str, int or bool for K. One that isn't set is empty, zero or
    None. Raises DeclarationError, with the right form.

    It becomes a betterproto2.Message. Its full name in protobuf is ``name``, else that of the type that carries it,
    such as ``staff.v1.Team``. A class that two types carry needs a name.

    ``reserved`` has the names of removed fields by their numbers, which no field may use again. ``renamed`` has by a
    field's number what it was called before: a name, or several in a tuple. A store refuses a program that lacks or
    renames a field without saying so. Both can be given for a class that betterproto2 has generated, too:
    ``message(reserved={3: "old_name"})(Generated)``.
    """
    if cls is not None:
        # The frame between is that of `check_keywords`.
        return _declare(cls, name, sys._getframe(2))

    def declare(decorated: type[Any]) -> type[Any]:
        changed = reserved is not None or renamed is not None
        if changed and is_generated(decorated):
            if name is not None:
                raise DeclarationError(
                    f"{decorated.__qualname__}: name={name!r} must not be given: its .proto names it"
                )
            made = decorated
        else:
            made = _declare(decorated, name, sys._getframe(1))
        if changed:
            declare_changes(made, reserved, renamed)
        return made

    return declare


def _is_full_name(given: object) -> bool:
    return isinstance(given, str) and _FULL_NAME.fullmatch(given) is not None


def _declare(cls: type[Any], name: str | None, frame: FrameType) -> type[Any]:
    if not isinstance(cls, type):
        raise DeclarationError(f"@headway.message is put on a class, not on {cls!r}")
    if name is not None and not _is_full_name(name):
        raise DeclarationError(f"{cls.__qualname__}: name={name!r} is no protobuf name; write one like 'acme.v1.Team'")
    for base in cls.__mro__[1:]:
        if dataclasses.is_dataclass(base):
            raise DeclarationError(
                f"{cls.__qualname__}: a message does not inherit fields, and {base.__qualname__} has some; "
                f"hold it instead: `{base.__name__.lower()}: {base.__name__} = field(1)`"
            )
    frames = _frames(frame)
    fields, markers = _read_fields(cls, frames)
    made = _rebuilt(cls, fields, markers)
    made._declaration = Declaration(cls.__name__, fields, frames)
    made._message_name, made._named_by = name or "", ""
    return made


def _frames(frame: FrameType | None) -> list[FrameType]:
    """Where names are looked up: the class bodies around the declaration, and their function or module."""
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        if frame.f_code.co_flags & inspect.CO_OPTIMIZED or frame.f_locals is frame.f_globals:
            break
        frame = frame.f_back
    return frames


def _annotations(cls: type[Any]) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(cls, format=annotationlib.Format.STRING)
    return inspect.get_annotations(cls)


def _read_fields(cls: type[Any], frames: list[FrameType]) -> tuple[dict[str, Annotation], dict[str, _Field]]:
    inside = {name: value for name, value in vars(cls).items() if not isinstance(value, _Field)}
    names = Names([inside, *scopes(frames)])
    # The name may still be that of an older class; in the annotations it means this one.
    names[cls.__name__] = Names([])[cls.__name__]
    fields: dict[str, Annotation] = {}
    markers: dict[str, _Field] = {}
    taken: dict[int, str] = {}
    for name, annotation in _annotations(cls).items():
        where = f"{cls.__qualname__}.{name}"
        annotation = evaluated(annotation, names, where)
        if annotation is ClassVar or get_origin(annotation) is ClassVar:
            continue
        marker = _marker(cls, name, annotation, max(taken, default=0) + 1)
        _check_name(name, where)
        _check_number(marker, where, taken)
        taken[marker.number] = name
        fields[name] = read_annotation(annotation, marker.kind, names, where)
        markers[name] = marker
    for name, value in vars(cls).items():
        if isinstance(value, _Field) and name not in fields:
            number = value.number
            raise DeclarationError(
                f"{cls.__qualname__}.{name} has no annotation: write `{name}: str = field({number})`"
            )
    return fields, markers


def _marker(cls: type[Any], name: str, annotation: Any, free: int) -> _Field:
    marker = cls.__dict__.get(name)
    written = getattr(annotation, "__name__", None) if isinstance(annotation, type) else None
    right = f"`{name}: {written or annotation} = field({free})`"
    if isinstance(marker, _Field):
        if marker.refused:
            given = ", ".join(f"{option}={value!r}" for option, value in marker.refused.items())
            raise DeclarationError(
                f"{cls.__qualname__}.{name}: field() takes no {given}; an unset field holds proto3's "
                f"default, and one that may be absent is `X | None`"
            )
        return marker
    if name in cls.__dict__:
        raise DeclarationError(
            f"{cls.__qualname__}.{name} is {marker!r}, where its number should be: write {right}; "
            f"an unset field holds proto3's default, and a constant of the class is a ClassVar"
        )
    raise DeclarationError(f"{cls.__qualname__}.{name} has no number: write {right}")


def _check_name(name: str, where: str) -> None:
    if name.startswith("_") or hasattr(betterproto2.Message, name):
        raise DeclarationError(f"{where}: a message has a {name!r} of its own; give the field another name")
    in_json = camel_case(name).rstrip("_")
    back = safe_snake_case(in_json)
    if back != name:
        raise DeclarationError(
            f"{where}: in JSON this is {in_json!r}, which is read back as {back!r}; call the field {back!r}"
        )


def _check_number(marker: _Field, where: str, taken: dict[int, str]) -> None:
    number = marker.number
    if not isinstance(number, int) or isinstance(number, bool):
        raise DeclarationError(f"{where}: field({number!r}) should be given a number: `field(1)`")
    if not 1 <= number <= HIGHEST_NUMBER or number in _RESERVED:
        raise DeclarationError(
            f"{where}: field({number}) is out of range; a number is from 1 to {HIGHEST_NUMBER}, "
            f"and not from {_RESERVED[0]} to {_RESERVED[-1]}, which protobuf keeps for itself"
        )
    if number in taken:
        free = max(taken) + 1
        raise DeclarationError(
            f"{where}: field({number}) is already {taken[number]!r}; the next free one is field({free})"
        )


def _rebuilt(cls: type[Any], fields: dict[str, Annotation], markers: dict[str, _Field]) -> type[DeclaredMessage]:
    """The class again, with a message for its base."""
    body = {name: value for name, value in vars(cls).items() if name not in _OF_EVERY_CLASS}
    annotations = _annotations(cls)
    for name, declared in fields.items():
        body[name] = _dataclass_field(declared, markers[name].number)
    body["__annotations__"] = {name: annotations[name] for name in fields}
    body["__qualname__"] = cls.__qualname__
    plain = (object, betterproto2.Message)
    bases = (*(base for base in cls.__bases__ if base not in plain), DeclaredMessage)
    made = ABCMeta(cls.__name__, bases, body)
    _repoint(cls, made, body)
    return cast("type[DeclaredMessage]", dataclasses.dataclass(eq=False, repr=False, kw_only=True)(made))


def _dataclass_field(declared: Annotation, number: int) -> Any:
    element = declared.element
    if declared.key is not None:
        map_meta = betterproto2.map_meta(
            declared.key.proto_type, element.proto_type, unwrap_2=cast("Any", element.unwrap)
        )
        return betterproto2.field(number, betterproto2.TYPE_MAP, map_meta=map_meta)
    made = betterproto2.field(
        number,
        element.proto_type,
        unwrap=element.unwrap,
        optional=declared.shape == "optional",
        repeated=declared.shape == "repeated",
        default_factory=_enum_default(element.python) if element.proto_type == "enum" else None,
    )
    if declared.shape == "single" and element.proto_type == "message":
        # betterproto2 would say None, which the annotation does not allow.
        unwrap: Any = element.unwrap
        made.default_factory = element.python if unwrap is None else lambda: unwrap()().to_wrapped()
    return made


def _enum_default(python: type[Any]) -> Callable[[], Any]:
    zero = PlainEnum(python)(0)
    return lambda: zero


def _repoint(old: type[Any], new: type[Any], body: Mapping[str, Any]) -> None:
    """Let `super()` and `__class__` in the methods mean the new class: they hold the old one in a cell."""
    for value in body.values():
        for function in (
            value,
            *(getattr(value, name, None) for name in ("fget", "fset", "fdel", "__func__")),
        ):
            cells: tuple[CellType, ...] = getattr(function, "__closure__", None) or ()
            for cell in cells:
                if _content(cell) is old:
                    cell.cell_contents = new


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        # A cell of a name that is not bound yet.
        return None
