"""Print the newest Python on this machine that is newer than 3.11: `python -m tests.pythons` (`make pythons`).

A name on the path may lead to no Python: the shims of a version manager fail for a version that is installed and not
chosen. So each candidate is run, and those that version managers have installed follow those on the path.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

MINORS = (14, 13, 12)
INSTALLED = (
    ("PYENV_ROOT", "~/.pyenv", "versions"),
    ("ASDF_DATA_DIR", "~/.asdf", "installs/python"),
    ("MISE_DATA_DIR", "~/.local/share/mise", "installs/python"),
    ("UV_PYTHON_INSTALL_DIR", "~/.local/share/uv/python", "."),
)
"""Where pyenv, asdf, mise and uv keep Pythons: the variable of the folder, its default, and the place in it."""
COMMON = ("/usr/local/bin", "/usr/bin", "/opt/homebrew/bin")
ASKED = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"


def candidates(minor: int, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the paths at which a Python 3 of this minor version may be, the likeliest first."""
    name = f"python3.{minor}"
    for folder in environ.get("PATH", "").split(os.pathsep):
        yield Path(folder, name)
    home = environ.get("HOME", "")
    for variable, default, place in INSTALLED:
        root = Path(environ.get(variable) or default.replace("~", home, 1), place)
        versions = (each for each in root.glob("*") if re.search(rf"(^|-)3\.{minor}(\.|$|-)", each.name))
        yield from (each / "bin" / name for each in sorted(versions, key=_numbers, reverse=True))
    for folder in COMMON:
        yield Path(folder, name)


def _numbers(folder: Path) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", folder.name)]


def newest(environ: Mapping[str, str], minors: tuple[int, ...] = MINORS) -> str | None:
    """Return the executable of the newest Python that runs and is of the version that its name says."""
    for minor in minors:
        for path in candidates(minor, environ):
            if not os.access(path, os.X_OK) or path.is_dir():
                continue
            try:
                ran = subprocess.run([path, "-c", ASKED], capture_output=True, text=True, timeout=60, check=False)
            except (OSError, subprocess.TimeoutExpired):
                continue
            version, _, executable = ran.stdout.strip().partition(" ")
            if ran.returncode == 0 and version == f"3.{minor}":
                return executable
    return None


if __name__ == "__main__":
    found = newest(os.environ)
    if found is None:
        names = ", ".join(f"python3.{minor}" for minor in MINORS)
        sys.exit(
            f"no newer Python found ({names}): name one, as in `make pythons PYTHONS=/opt/python3.13/bin/python3.13`"
        )
    print(found)
