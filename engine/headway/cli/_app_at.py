"""Import the apps that a command gets as ``module:attribute``."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from headway.cli._exits import Usage
from headway.controller import App


def apps_at(reference: str) -> list[App]:
    """Return the app or apps at ``module:attribute``. Raises Usage if there are none."""
    module, colon, attribute = reference.partition(":")
    if not (module and colon and attribute):
        raise Usage(f"{reference!r} is not an app; write module:attribute, such as staff.app:app")
    # Like `python -m`, find modules in the working directory.
    sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise Usage(f"{reference}: module {error.name!r} not found here or among installed packages") from error
        raise
    given: Any = found
    for part in attribute.split("."):
        if not hasattr(given, part):
            raise Usage(f"{reference}: {module} has no {attribute!r}")
        given = getattr(given, part)
    several = list(given) if isinstance(given, list | tuple) else [given]
    apps = [each for each in several if isinstance(each, App)]
    if not apps or len(apps) != len(several):
        raise Usage(f"{reference} is {given!r:.120}; it must be a headway.App, or a list of them")
    return apps
