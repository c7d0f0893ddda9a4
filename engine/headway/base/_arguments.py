"""Checks of the arguments of reads and connections. The errors name the argument, its value and a valid one. No I/O."""

from __future__ import annotations

import math
from typing import cast

from headway.base._text import repr_text
from headway.errors import DeclarationError, InvalidArgument


def check_text(name: str, given: object, example: str = "") -> None:
    """Raise InvalidArgument if an argument is not a string."""
    if not isinstance(given, str):
        raise InvalidArgument(f"{name} must be a string{example and f', such as {example}'}, not {repr_text(given)}")


def check_whole(name: str, given: object, least: int, example: object) -> None:
    """Raise DeclarationError if an argument is not a whole number of at least ``least``."""
    if isinstance(given, bool) or not isinstance(given, int) or given < least:
        raise DeclarationError(
            f"{name} must be a whole number >= {least}, such as {name}={example}, not {repr_text(given)}"
        )


def check_number(name: str, given: object, example: object, *, least: float = 0.0, endless: bool = False) -> None:
    """Raise DeclarationError if an argument is not a number of at least ``least``. ``endless`` also allows infinity."""
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if is_number and least <= (number := float(cast("float", given))) and (endless or math.isfinite(number)):
        return
    what = "a number" if endless else "a finite number"
    bound = "" if least == -math.inf else f" >= {least:g}"
    raise DeclarationError(f"{name} must be {what}{bound}, such as {name}={example}, not {repr_text(given)}")


def check_selection(partition: object, namespace: object, name_prefix: object) -> None:
    """Raise InvalidArgument if an argument that selects resources of a type is not a string."""
    check_text("partition", partition, "'default', or '*' for any")
    check_text("namespace", namespace, "'default', or '*' for any")
    check_text("name_prefix", name_prefix, "'team-'")


def check_token(given: object) -> None:
    """Raise InvalidArgument if an argument is not a token. The error does not show it, because it may be nearly right.

    A token is sent in a header, which holds only printable ASCII characters.
    """
    if not isinstance(given, str):
        raise InvalidArgument(
            f"token must be a string, as printed by `headway token new`, or '' for none, or a function that returns "
            f"it, such as headway.rpc.token_file('token'), not {_class_of(given)}"
        )
    if not (given.isascii() and given.isprintable()):
        raise InvalidArgument(
            "invalid token: it must be one line of ASCII characters, as printed by `headway token new`"
        )


def _class_of(given: object) -> str:
    return "None" if given is None else f"a value of class {type(given).__name__}"
