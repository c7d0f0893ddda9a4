"""Text of what a program's functions raise or give: it can always be made, and is bounded where it is kept. Pure."""

from __future__ import annotations

LONGEST = 2_000
"""How many characters of one error's text are kept or logged."""


def error_text(error: BaseException) -> str:
    """What ``str(error)`` gives, or a sentence that says that it has raised: its class is a program's own."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as failed:  # noqa: BLE001  # a class of the program's may raise anything
        return f"it has no text, because its __str__ raised {type(failed).__name__}"


def repr_text(value: object) -> str:
    """What ``repr(value)`` gives, or the class and a sentence that says that it has raised; bounded."""
    try:
        return bounded(repr(value), 200)
    except KeyboardInterrupt:
        raise
    except BaseException as failed:  # noqa: BLE001  # likewise
        return f"a {type(value).__name__}, whose __repr__ raised {type(failed).__name__}"


def bounded(text: str, longest: int = LONGEST) -> str:
    """The text, or its beginning and the number of characters that are left out."""
    more = len(text) - longest
    return text if more <= 0 else f"{text[:longest]}… ({more:,} more)"


def plain(text: str) -> str:
    """The text, with escapes in place of what can't be printed (line breaks too)."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
