"""Print the oldest versions that `pyproject.toml` allows of the libraries at run time: `python -m tests.oldest`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
_ALLOWED = re.compile(r"([\w.-]+)(?:\[[\w,-]+\])?>=([\d.]+)")


def oldest() -> Mapping[str, str]:
    """Return the oldest version of each library, of the extras too, by its name in lower case.

    Raises ValueError if a library has no oldest version, or two of them.
    """
    project = tomllib.loads(PROJECT.read_text())["project"]
    extras = {name: wanted for name, wanted in project["optional-dependencies"].items() if name != "all"}
    found: dict[str, str] = {}
    for each in [*project["dependencies"], *(one for wanted in extras.values() for one in wanted)]:
        allowed = _ALLOWED.match(each)
        if allowed is None or found.setdefault(allowed[1].lower(), allowed[2]) != allowed[2]:
            raise ValueError(f"{each} must have one oldest version, such as h2>=4.4.1")
    return found


if __name__ == "__main__":
    print(*(f"{name}=={version}" for name, version in oldest().items()))
