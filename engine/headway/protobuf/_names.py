"""The full protobuf names of message classes: declared, taken from a resource type, or generated."""

from __future__ import annotations

import re
import sys
from typing import Any

from headway.errors import DeclarationError
from headway.protobuf._declared import DeclaredMessage


def full_name(cls: type[Any]) -> str:
    """Return the full protobuf name of a message class, or an empty string if it has no name of its own.

    A declared class has none if it is declared without ``name=`` and is not the payload of a type. Then it is named
    after the message that contains it.
    """
    if issubclass(cls, DeclaredMessage):
        return cls._message_name
    # Generated classes are named only in the message pool of their package.
    pool = getattr(sys.modules.get(cls.__module__), "default_message_pool", None)
    url: str | None = pool.type_to_url.get(cls) if pool is not None else None
    return url.rpartition("/")[2] if url is not None else module_name(cls)


def bind_name(cls: type[Any], type: str) -> str:
    """Return the full protobuf name of the payload of a type. A declared class without a name keeps the type's name.

    Raises:
        DeclarationError: The class is already named after another type.
    """
    name = full_name(cls)
    if not issubclass(cls, DeclaredMessage) or (name and not cls._named_by):
        return name
    if not name:
        cls._message_name = cls._named_by = type
    elif cls._named_by != type:
        raise DeclarationError(
            f"type {type}: payload {cls.__name__} is already named {name} after another type. "
            f"Give the class a name of its own, for both types: @headway.message(name={type!r})"
        )
    return cls._message_name


def nested_name(cls: type[Any], within: str) -> str:
    """Return the name of a class without a name of its own, which the message ``within`` contains."""
    return f"{within}.{_proto_name(cls.__name__)}"


def module_name(cls: type[Any]) -> str:
    """Return ``<module>.<class>`` as a valid protobuf name. Earlier releases named all declared classes this way."""
    parts = f"{cls.__module__}.{cls.__qualname__}".replace(".<locals>", "").split(".")
    return ".".join(map(_proto_name, parts))


def _proto_name(name: str) -> str:
    return re.sub(r"^(?=\d)|[^A-Za-z0-9_]", "_", name)
