"""Names of a package that are imported at their first use, so that importing the package stays fast."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def imported_later(
    package: str, modules: Mapping[str, str], before: Callable[[], object] | None = None
) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package: ``__getattr__ = imported_later(__name__, {"_module": "Name other"})``.

    A name that has been used once is an attribute of the package like any other.

    Args:
        modules: the names from each module, which is relative to the package; "" for a module that is meant itself.
        before: called before each import, such as to check what the modules need.
    """
    module_of = {name: module for module, names in modules.items() for name in names.split()}

    def get(name: str) -> Any:
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if before is not None:
            before()
        found = import_module(f"{package}.{module or name}")
        value = getattr(found, name) if module else found
        setattr(sys.modules[package], name, value)
        return value

    return get
