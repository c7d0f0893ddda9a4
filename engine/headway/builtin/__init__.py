"""Controllers that every engine runs, written only with the public API.

Start with `_reaper.py` (deletes what a deleted owner owned, and owners whose last finalizer is gone), then read
`_tenancy.py` (deletes the content of a namespace or partition).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headway.builtin._reaper import add_reaper
from headway.builtin._tenancy import Unregistered, add_tenancy, nothing_unregistered
from headway.controller import App
from headway.resource import ResourceType

NAME = "headway"
"""The app's name, which no app of a program may have."""


def builtin_app(
    types: Iterable[ResourceType[Any]] = (),
    unregistered: Unregistered = nothing_unregistered,
) -> App:
    """Return a new app. Its controllers run alongside the program's controllers.

    Args:
        types: the program's types.
        unregistered: counts the other resources in a tenancy.
    """
    app, types = App(NAME), list(types)
    add_reaper(app, types)
    add_tenancy(app, types, unregistered)
    return app
