"""The codecs of message classes: functions that are generated for each class, and compiled."""

from __future__ import annotations

import copy
import linecache
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import betterproto2

from headway.base import Steps
from headway.errors import PayloadError
from headway.protobuf import _wire as wire
from headway.protobuf._decoder import decoder_source
from headway.protobuf._encoder import copier_source, encoder_source, equality_source, unknown_source
from headway.protobuf._plan import (
    ClassPlan,
    Globals,
    MessageClass,
    UnsupportedClassError,
    elements,
    metadata_of,
    plan_class,
)

_SOURCES: dict[str, Callable[[ClassPlan, Globals], str]] = {
    "encode": encoder_source,
    "decode": decoder_source,
    "copy": copier_source,
    "equal": equality_source,
    "unknown": unknown_source,
}


class Codec:
    """The functions for one message class. Each is compiled at its first use.

    Most messages are only encoded by one process and decoded by another.
    """

    __slots__ = ("_cls", "_plan", *_SOURCES)

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes, int, int, int], Any]
    copy: Callable[[Any], Any]
    equal: Callable[[Any, Any], bool]
    unknown: Callable[[Any], bool]

    def __init__(self, cls: MessageClass) -> None:
        self._cls = cls
        self._plan: ClassPlan | None = None

    def __getattr__(self, name: str) -> Any:
        if name not in _SOURCES:
            raise AttributeError(name)
        _compile(self._cls, name)
        return object.__getattribute__(self, name)

    def has(self, function: str) -> bool:
        """Return True if the function is compiled."""
        try:
            object.__getattribute__(self, function)
        except AttributeError:
            return False
        return True

    def plan(self) -> ClassPlan:
        """Return the plan of the class. Raises UnsupportedClassError."""
        if self._plan is None:
            self._plan = plan_class(self._cls)
        return self._plan


ATTRIBUTE = "_headway_codec"
"""The attribute of a class that holds its codec."""
STEPWISE = "_headway_steps"
"""The attribute of a class that holds its functions in steps, once they are compiled."""


class Stepwise(NamedTuple):
    """The functions for one message class that are steps: see `Steps`."""

    encode: Callable[[Any], Steps[bytes]]
    decode: Callable[[bytes, int, int, int], Steps[Any]]


def kept_codec(cls: type[Any]) -> Codec:
    """Return the codec of a class. If it has none, make one and keep it with the class."""
    codec: Codec | None = cls.__dict__.get(ATTRIBUTE)
    if codec is None:
        codec = Codec(cls)
        setattr(cls, ATTRIBUTE, codec)
    return codec


def _compile(root: MessageClass, function: str) -> None:
    """Compile one function of a class, and of all classes that it can hold."""
    # The codecs of classes that have it already, or are not supported.
    plans, ready = _planned(root, function)
    number: dict[type, int] = {cls: index for index, cls in enumerate([*plans, *ready])}
    shared = Globals(names_for_all(), number)
    for cls, codec in ready.items():
        shared.objects[f"{function}_{number[cls]}"] = getattr(codec, function)
    for cls, own in number.items():
        shared.objects[f"class_{own}"] = cls
    _run([_SOURCES[function](plan, shared) for plan in plans.values()], function, root, shared)
    for cls in plans:
        setattr(kept_codec(cls), function, shared.objects[f"{function}_{number[cls]}"])


def compile_stepwise(root: MessageClass) -> Stepwise:
    """Compile the functions of a class that are steps, and keep them with it.

    Most classes need none, so they are compiled apart from the codec: when the first message is encoded in steps, or
    the first large one decoded. That takes some milliseconds.
    """
    plans, unsupported = _planned(root, "")
    number: dict[type, int] = {cls: index for index, cls in enumerate([*plans, *unsupported])}
    shared = Globals(names_for_all(), number, _flat(plans) | unsupported.keys(), stepwise=True)
    for cls, codec in unsupported.items():
        own = number[cls]
        shared.objects[f"encode_{own}"] = codec.encode
        shared.objects[f"decode_{own}"] = codec.decode
        shared.objects[f"decoding_{own}"] = _in_one(codec.decode)
    sources: list[str] = []
    for cls, own in number.items():
        shared.objects[f"class_{own}"] = cls
    for plan in plans.values():
        for each in (shared._replace(stepwise=False), shared):
            sources += [decoder_source(plan, each), encoder_source(plan, each)]
    _run(sources, "steps", root, shared)
    own = number[root]
    if root in unsupported:
        made = Stepwise(_in_one(unsupported[root].encode), _in_one(unsupported[root].decode))
    else:
        made = Stepwise(shared.objects[f"encoding_{own}"], shared.objects[f"decoding_{own}"])
    setattr(root, STEPWISE, made)
    return made


def _in_one(function: Callable[..., Any]) -> Callable[..., Steps[Any]]:
    def steps(*arguments: Any) -> Steps[Any]:
        yield
        return function(*arguments)

    return steps


def _planned(root: MessageClass, function: str) -> tuple[dict[MessageClass, ClassPlan], dict[MessageClass, Codec]]:
    """Return the plans of a class and of all classes that it can hold, and the codecs of those without a plan.

    Classes that have the function need no plan.
    """
    plans: dict[MessageClass, ClassPlan] = {}
    ready: dict[MessageClass, Codec] = {}
    waiting = [root]
    while waiting:
        cls = waiting.pop()
        if cls in plans or cls in ready:
            continue
        codec = kept_codec(cls)
        if function and codec.has(function):
            ready[cls] = codec
            continue
        try:
            plans[cls] = codec.plan()
        except UnsupportedClassError:
            ready[cls] = codec
            _use_own_methods(codec, cls)
        else:
            waiting += plans[cls].messages()
    return plans, ready


def _flat(plans: Mapping[MessageClass, ClassPlan]) -> frozenset[type]:
    """Return the classes whose messages hold no lists, no maps, and only such messages."""
    flat: set[type] = set()
    while True:
        more = {
            cls
            for cls, plan in plans.items()
            if cls not in flat
            and all(each.shape in ("single", "optional") for each in plan.fields)
            and flat.issuperset(plan.messages())
        }
        if not more:
            return frozenset(flat)
        flat |= more


def _run(sources: list[str], what: str, root: MessageClass, shared: Globals) -> None:
    source = "\n\n".join(sources)
    file = f"<{what} of {root.__module__}.{root.__qualname__}>"
    # Lets tracebacks and debuggers show the generated code.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), shared.objects)  # generated here; the field names are valid identifiers


def names_for_all() -> dict[str, Any]:
    """Return the globals that the generated code of every class needs."""
    names: dict[str, Any] = {
        "PayloadError": PayloadError,
        "MALFORMED": (IndexError, ValueError, OverflowError, struct.error),
        "entry_names": {1: "key", 2: "value"},
        "digits": [wire.varint(number) for number in range(wire.SHORT)],
        "equal_floats": _equal_floats,
        "no_text": "",
        "no_bytes": b"",
        "zero": 0,
        "must_be": _must_be,
        "many": _many,
        "Mapping": Mapping,
        "new": object.__new__,
        "copysign": math.copysign,
        "pack": struct.pack,
        "unpack": struct.unpack,
    }
    shared = (wire.read_varint, wire.varint, wire.skip, wire.long_head, wire.truncated, wire.too_deep)
    errors = (wire.located, wire.malformed)
    for function in (*shared, *errors, wire.signed_varint, wire.unsigned_varint, wire.zigzag_varint):
        names[function.__name__] = function
    for code in wire.FIXED_FORMATS.values():
        names[f"pack_{code}"] = struct.Struct(f"<{code}").pack
        names[f"unpack_{code}"] = struct.Struct(f"<{code}").unpack_from
    return names


def _equal_floats(left: Any, right: Any) -> bool:
    # NaN equals NaN, so that a message always equals its copy. The two zeros differ, as they do in a store.
    if left == right:
        floats = left.__class__ is float is right.__class__
        return bool(left) or not floats or math.copysign(1, left) == math.copysign(1, right)
    return bool(left != left and right != right and left is not None and right is not None)


def _must_be(cls: type, value: object) -> None:
    if not isinstance(value, cls):
        raise TypeError(f"expected {cls.__name__}")


def _many(value: object) -> list[Any]:
    # A loop would take a text for its letters, bytes for numbers, and a map for its keys.
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes, bytearray, memoryview, Mapping)):
        raise TypeError("expected a list")
    if isinstance(value, Iterator):
        # The next use of the message would find it empty.
        raise wire.WireError("an iterator can be read only once: use list(...)")
    return list(value)


def _use_own_methods(codec: Codec, cls: MessageClass) -> None:
    """Let a codec call betterproto2's methods, for a class that is not supported."""

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

    codec.encode, codec.decode, codec.copy, codec.equal, codec.unknown = bytes, decode, deep, equal, _has_unknown


def _has_unknown(message: betterproto2.Message) -> bool:
    if message._unknown_fields:
        return True
    return any(
        isinstance(each, betterproto2.Message) and _has_unknown(each)
        for name in metadata_of(type(message)).sorted_field_names
        for each in elements(getattr(message, name))
    )
