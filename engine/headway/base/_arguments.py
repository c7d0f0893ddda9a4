"""Checks of the arguments of reads and connections. The errors name the argument, its value and a valid one. No I/O."""

from __future__ import annotations

from headway.base._text import repr_text
from headway.errors import InvalidArgument


def check_text(name: str, given: object, example: str = "") -> None:
    """Raise InvalidArgument if an argument is not a string."""
    if not isinstance(given, str):
        raise InvalidArgument(f"{name} must be a string{example and f', such as {example}'}, not {repr_text(given)}")


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
