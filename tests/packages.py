"""Try the wheel and the sdist of a folder as a user would: `python -m tests.packages dist` (`make dist`).

The wheel is installed in a fresh environment, and the program and the proof of the README run from there. Afterwards
the steps of the Dockerfile run, as far as this machine allows (`image.py`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

from tests.image import try_image

ROOT = Path(__file__).parents[1]


def main(folder: Path) -> None:
    """Check what `folder` contains. Raises an exception for the first fault."""
    [wheel], [sdist] = folder.glob("headway-*.whl"), folder.glob("headway-*.tar.gz")
    check_wheel(wheel)
    check_sdist(sdist)
    with tempfile.TemporaryDirectory() as place:
        python = fresh_environment(Path(place), wheel)
        try_readme(python, Path(place))
    print(f"{wheel.name} and {sdist.name} are as they should be, and the README's program and proof run from the wheel")
    print(try_image())


def check_wheel(wheel: Path) -> None:
    """Compare the wheel with the sources: every module, every .proto file, and the files that are no modules."""
    with zipfile.ZipFile(wheel) as opened:
        packed = {name: opened.read(name) for name in opened.namelist()}
    wanted = {path: f"headway/{path.relative_to(ROOT / 'engine/headway')}" for path in sources("engine/headway", "py")}
    pages = [path for kind in ("css", "html", "js", "svg", "txt") for path in sources("engine/headway", kind)]
    wanted |= {path: f"headway/{path.relative_to(ROOT / 'engine/headway')}" for path in pages}
    protos = sources("schema/headway", "proto")
    wanted |= {path: f"headway/protos/{path.relative_to(ROOT / 'schema')}" for path in protos}
    wanted[ROOT / "engine/headway/py.typed"] = "headway/py.typed"
    assert protos
    assert pages
    for path, name in wanted.items():
        assert packed.get(name) == path.read_bytes(), f"{name} of {wheel.name} differs from {path}"
    [metadata] = (text.decode() for name, text in packed.items() if name.endswith(".dist-info/METADATA"))
    for line in ("Name: headway", "License-Expression: Apache-2.0", "Author: The Headway maintainers"):
        assert line in metadata.splitlines(), f"{wheel.name} has no {line!r}"
    others = {name.split("/")[0] for name in packed} - {"headway"}
    assert all(name.endswith(".dist-info") for name in others), f"{wheel.name} also installs {others}"


def check_sdist(sdist: Path) -> None:
    """Check that the sdist has what it takes to build the wheel and the site, and nothing that a build has made."""
    with tarfile.open(sdist) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    for name in (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "mkdocs.yml",
        "docs/contract.md",
        "Makefile",
    ):
        assert name in names, f"{sdist.name} lacks {name}"
    assert not [name for name in names if name.split("/")[0] in (".venv", "run", "dist") or "__pycache__" in name]


def sources(folder: str, kind: str) -> list[Path]:
    """Return the files of a folder that git knows, by their suffix."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    paths = [ROOT / name for name in listed.stdout.splitlines() if name.endswith(f".{kind}")]
    return [path for path in paths if path.exists()]


def fresh_environment(place: Path, wheel: Path) -> Path:
    """Return the Python of a new environment that has the wheel and what it depends on, and nothing else."""
    venv.create(place / "environment", with_pip=True)
    python = place / "environment/bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel], check=True)
    return python


def try_readme(python: Path, place: Path) -> None:
    """Run the README's program twice, then its proof, which explores every fault, and the command."""
    program, proof = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (place / "staff.py").write_text(program)
    for _ in range(2):
        assert run(python, place, "-W", "error", "staff.py") == "['ada', 'grace']\n"
    (place / "test_staff.py").write_text(f"{program}\n{proof}\ntest_accounts()\n")
    proved = run(python, place, "-W", "error", "test_staff.py")
    assert re.search(r"\d+ runs", proved), proved
    assert run(python, place, "-m", "headway.cli", "--version").startswith("headway ")
    command = [str(python.parent / "headway"), "graph", "staff:app"]
    shown = subprocess.run(command, cwd=place, env=clean_environment(), capture_output=True, text=True, check=True)
    assert "staff/accounts" in shown.stdout


def run(python: Path, place: Path, *arguments: str) -> str:
    """Run Python in a folder, without this checkout on its path. Return its output."""
    done = subprocess.run(
        [python, *arguments], cwd=place, env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def clean_environment() -> dict[str, str]:
    """Return the environment without what points Python to this checkout."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
