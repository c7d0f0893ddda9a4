"""The full protobuf names of message classes: given, bound to the type that carries the class, or generated."""

from __future__ import annotations

import re
import sys
from typing import Any

from headway.errors import DeclarationError
from headway.resource._declared import DeclaredMessage
from headway.resource._ids import TypeName


def full_name(cls: type[Any]) -> str:
    """Return the full protobuf name of a message class; empty for a declared one that has none by itself.

    Such a class has no ``name=``, and no type carries it: it is named after the message that holds it.
    """
    if issubclass(cls, DeclaredMessage):
        return cls._message_name
    # Generated code knows its name by the message pool of its package alone.
    pool = getattr(sys.modules.get(cls.__module__), "default_message_pool", None)
    url: str | None = pool.type_to_url.get(cls) if pool is not None else None
    return url.rpartition("/")[2] if url is not None else module_name(cls)


def bind_name(cls: type[Any], type: TypeName) -> str:
    """Return the full protobuf name of a type's payload. A declared class without a name gets the type's for ever.

    Raises DeclarationError for a class that carries the name of another type.
    """
    name = full_name(cls)
    if not issubclass(cls, DeclaredMessage) or (name and not cls._named_by):
        return name
    if not name:
        cls._message_name = cls._named_by = str(type)
    elif cls._named_by != str(type):
        raise DeclarationError(
            f"type {type}: payload {cls.__name__} is named {name} by the type that carries it already. "
            f"Give the class a name of its own, for both types: @headway.message(name={str(type)!r})"
        )
    return cls._message_name


def nested_name(cls: type[Any], within: str) -> str:
    """Return the name of a class that has none by itself and is held by the message of this name."""
    return f"{within}.{_proto_name(cls.__name__)}"


def module_name(cls: type[Any]) -> str:
    """Return ``<module>.<class>`` as protobuf can have it: the name of every declared class in earlier versions."""
    parts = f"{cls.__module__}.{cls.__qualname__}".replace(".<locals>", "").split(".")
    return ".".join(map(_proto_name, parts))


def _proto_name(name: str) -> str:
    return re.sub(r"^(?=\d)|[^A-Za-z0-9_]", "_", name)
