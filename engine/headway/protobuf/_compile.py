"""Compile a message class into functions that encode, decode, copy and compare it.

The generated code was measured against upb, with a descriptor built from the same metadata. upb parses faster, but
copying the fields into the betterproto2 message, and looking for unknown ones, costs more than decoding with Python
code generated for the class.
"""

import copy
import linecache
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import betterproto2

from headway.errors import PayloadError
from headway.protobuf import _wire as wire
from headway.protobuf._copier import copier_source, equality_source
from headway.protobuf._decoder import decoder_source
from headway.protobuf._encoder import encoder_source
from headway.protobuf._plan import ClassPlan, MessageClass, UnsupportedClassError, plan_class

_ATTRIBUTE = "_headway_codec"


@dataclass(frozen=True, slots=True)
class Codec:
    """The functions for one message class. ``compiled`` is False if they only call betterproto2."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes, int, int, int], Any]
    copy: Callable[[Any], Any]
    equal: Callable[[Any, Any], bool]
    compiled: bool


def codec_of(cls: type[Any]) -> Codec:
    """Return the codec of a class. It is compiled on first use, with the codecs of all classes that it can hold."""
    codec: Codec | None = cls.__dict__.get(_ATTRIBUTE)
    if codec is None:
        _compile(cls)
        codec = cls.__dict__[_ATTRIBUTE]
    return codec


def _compile(root: MessageClass) -> None:
    plans: dict[MessageClass, ClassPlan | None] = {}
    ready: dict[MessageClass, Codec] = {}
    waiting = [root]
    while waiting:
        cls = waiting.pop()
        if cls in plans or cls in ready:
            continue
        if (codec := cls.__dict__.get(_ATTRIBUTE)) is not None:
            ready[cls] = codec
            continue
        try:
            plan = plans[cls] = plan_class(cls)
        except UnsupportedClassError:
            plans[cls] = None
        else:
            waiting += plan.messages()
    number: dict[type, int] = {cls: index for index, cls in enumerate([*plans, *ready])}
    for cls, codec in _run(plans, ready, number).items():
        setattr(cls, _ATTRIBUTE, codec)


def _run(
    plans: dict[MessageClass, ClassPlan | None], ready: dict[MessageClass, Codec], number: dict[type, int]
) -> dict[MessageClass, Codec]:
    known = _names_for_all()
    sources: list[str] = []
    for cls, plan in plans.items():
        own = number[cls]
        known[f"class_{own}"] = cls
        if plan is None:
            ready[cls] = _uncompiled(cls)
        else:
            sources += [decoder_source(plan, known, number), encoder_source(plan, known, number)]
            sources += [copier_source(plan, number), equality_source(plan, number)]
    for cls, codec in ready.items():
        known[f"class_{number[cls]}"] = cls
        for name in ("encode", "decode", "copy", "equal"):
            known[f"{name}_{number[cls]}"] = getattr(codec, name)
    source = "\n\n".join(sources)
    root = next(iter(plans))
    file = f"<codec of {root.__module__}.{root.__qualname__}>"
    # Lets tracebacks and debuggers show the generated code.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), known)  # generated above; the field names are valid identifiers
    return {cls: ready[cls] if plan is None else _compiled(known, number[cls]) for cls, plan in plans.items()}


def _compiled(known: dict[str, Any], own: int) -> Codec:
    functions = {name: known[f"{name}_{own}"] for name in ("encode", "decode", "copy", "equal")}
    return Codec(**functions, compiled=True)


def _names_for_all() -> dict[str, Any]:
    names: dict[str, Any] = {
        "PayloadError": PayloadError,
        "MALFORMED": (IndexError, ValueError, OverflowError, struct.error),
        "entry_names": {1: "key", 2: "value"},
        "digits": [wire.varint(number) for number in range(wire.SHORT)],
        "equal_floats": _equal_floats,
        "new": object.__new__,
        "pack": struct.pack,
        "unpack": struct.unpack,
    }
    shared = (wire.read_varint, wire.varint, wire.skip, wire.long_head, wire.truncated, wire.too_deep)
    errors = (wire.located, wire.malformed)
    writers = (wire.write_int32, wire.write_int64, wire.write_uint32, wire.write_uint64)
    for function in (*shared, *errors, *writers):
        names[function.__name__] = function
    for code in wire.FIXED_FORMATS.values():
        names[f"pack_{code}"] = struct.Struct(f"<{code}").pack
        names[f"unpack_{code}"] = struct.Struct(f"<{code}").unpack_from
    return names


def _equal_floats(left: Any, right: Any) -> bool:
    # NaN equals NaN, so that a message always equals its copy.
    return bool(left == right or (left != left and right != right and left is not None and right is not None))


def _uncompiled(cls: MessageClass) -> Codec:
    """Return a codec that calls betterproto2's methods, for a class that is not supported."""

    def decode(data: bytes, start: int, end: int, depth: int) -> betterproto2.Message:
        if depth > wire.DEPTH_LIMIT:
            raise wire.too_deep()
        try:
            return cls.parse(data[start:end])
        except Exception as error:
            # The class may raise any exception. The caller expects only PayloadError.
            raise wire.WireError(f"{type(error).__name__}: {error}") from error

    def deep(message: betterproto2.Message) -> betterproto2.Message:
        copied = copy.deepcopy(message)
        copied._unknown_fields = message._unknown_fields
        return copied

    def equal(left: betterproto2.Message | None, right: betterproto2.Message | None) -> bool:
        if left is None or right is None:
            return left is right
        return left == right and left._unknown_fields == right._unknown_fields

    return Codec(bytes, decode, deep, equal, compiled=False)
