"""The app of the controllers that every engine runs."""

from __future__ import annotations

from headway.builtin._reaper import add_reaper
from headway.controller import App

NAME = "headway"
"""The app's name; no program's app can have it."""


def builtin_app() -> App:
    """A new one: its controllers run beside those of the program."""
    app = App(NAME)
    add_reaper(app)
    return app
