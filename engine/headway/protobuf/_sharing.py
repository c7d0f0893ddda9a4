"""Decode messages whose equal parts are one object: all resources of a snapshot have the same type, for example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.protobuf._codec import P, codec_of, decoder_of
from headway.protobuf._compile import names_for_all
from headway.protobuf._decoder import decoder_source
from headway.protobuf._plan import ClassPlan, Globals, MessageClass, plan_class

_Decode = Callable[[bytes, int, int, int], Any]
_LONGEST = 1024
"""The most bytes of a part that is kept: a server that lies must not fill the memory of its clients."""


def sharing_decoder_of(cls: type[P], *parts: type[Any], most: int = 1024) -> Callable[[bytes, int, int], P]:
    """Return a decoder like `decoder_of`, whose results share equal parts. The parts must never be changed.

    Sharing saves the time and the memory of decoding each part again, and most of the work of the garbage collector.

    Args:
        cls: The class to decode. It and all classes that it contains were generated from a schema.
        parts: The classes whose messages are shared.
        most: The maximum number of messages of each part that are kept. One more clears them all. Long messages are
            never kept.
    """
    plans: dict[MessageClass, ClassPlan] = {}
    if not _plan_holders(cls, parts, plans):
        return decoder_of(cls)
    held = {message for plan in plans.values() for message in plan.messages()}
    number: dict[type, int] = {each: index for index, each in enumerate(plans.keys() | held)}
    code = Globals(names_for_all(), number)
    for each in held - plans.keys():
        decode = codec_of(each).decode
        code.objects[f"decode_{number[each]}"] = _sharing(decode, most) if each in parts else decode
    for each in plans:
        code.objects[f"class_{number[each]}"] = each
    source = "\n\n".join(decoder_source(plan, code) for plan in plans.values())
    exec(compile(source, f"<sharing decoder of {cls.__qualname__}>", "exec"), code.objects)  # as in `_compile.py`
    read: _Decode = code.objects[f"decode_{number[cls]}"]
    return lambda data, begin, end: read(data, begin, end, 1)


def _plan_holders(cls: type[Any], parts: tuple[type[Any], ...], plans: dict[MessageClass, ClassPlan]) -> bool:
    """Add the plans of a class, and of those in it, that hold a part or may hold it. Return True if the class does."""
    if cls in plans:
        return True
    plan = plans[cls] = plan_class(cls)
    found = [each in parts or _plan_holders(each, parts, plans) for each in plan.messages()]
    if not any(found):
        del plans[cls]
    return any(found)


def _sharing(decode: _Decode, most: int) -> _Decode:
    kept: dict[bytes, Any] = {}

    def decode_once(data: bytes, begin: int, end: int, depth: int) -> Any:
        body = data[begin:end]
        message = kept.get(body)
        if message is None:
            message = decode(data, begin, end, depth)
            if len(body) <= _LONGEST:
                if len(kept) == most:
                    kept.clear()
                kept[body] = message
        return message

    return decode_once
