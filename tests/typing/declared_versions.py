"""Typed declarations of converters. A type checker must find each ignored error."""

import headway
from headway import field


@headway.message
class Old:
    """The older payload."""

    text: str = field(1)


@headway.message
class New:
    """The newer payload."""

    text: str = field(1)


app = headway.App("versions")
OLD = app.type("versions", "v1", "Note", Old)
NEW = app.type("versions", "v2", "Note", New)


def up(old: Old) -> New:
    """Convert to the newer payload."""
    return New(text=old.text)


def down(new: New) -> Old:
    """Convert to the older payload."""
    return Old(text=new.text)


async def late(old: Old) -> New:
    """Convert asynchronously, which is not allowed."""
    return up(old)


def declared() -> None:
    """Declare converters, right and wrong. This function is only type-checked and never called."""
    app.converter(OLD, NEW, up=up, down=down)
    app.converter(OLD, NEW, up=lambda old: New(text=old.text), down=lambda new: Old(text=new.text))
    app.converter(OLD, NEW, up=down, down=up)  # type: ignore[arg-type]
    app.converter(NEW, OLD, up=up, down=down)  # type: ignore[arg-type]
    app.converter(OLD, NEW, up=late, down=down)  # type: ignore[arg-type]
    app.store_as(OLD)
    app.store_as(Old)  # type: ignore[arg-type]
