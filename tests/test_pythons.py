"""The search for another Python, which `make pythons` begins with."""

from pathlib import Path

import pytest

from tests.pythons import candidates, newest


def python(path: Path, answer: str, status: int = 0) -> str:
    """Make a program that answers what a Python would, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{answer}'\nexit {status}\n")
    path.chmod(0o755)
    return str(path)


def test_python_of_a_version_manager_is_found_behind_its_failing_shim(tmp_path: Path) -> None:
    python(tmp_path / "shims" / "python3.77", "the command exists in these versions: 3.77.1", 127)
    for version in ("3.77.1", "3.77.10", "3.7.17", "3.76.0"):
        minor = version.split(".")[1]
        path = tmp_path / "versions" / version / "bin" / f"python3.{minor}"
        python(path, f"3.{minor} {path}")
    environ = {"PATH": f"{tmp_path}/shims", "PYENV_ROOT": str(tmp_path), "HOME": str(tmp_path)}
    assert newest(environ, (77, 76)) == f"{tmp_path}/versions/3.77.10/bin/python3.77"


def test_python_on_the_path_comes_first(tmp_path: Path) -> None:
    first = tmp_path / "bin" / "python3.77"
    python(first, f"3.77 {first}")
    other = tmp_path / "versions" / "3.77.1" / "bin" / "python3.77"
    python(other, f"3.77 {other}")
    assert newest({"PATH": f"{tmp_path}/bin", "PYENV_ROOT": str(tmp_path)}, (77,)) == str(first)


@pytest.mark.parametrize(
    ("variable", "place"),
    [
        ("ASDF_DATA_DIR", "installs/python/3.77.2"),
        ("MISE_DATA_DIR", "installs/python/3.77"),
        ("UV_PYTHON_INSTALL_DIR", "cpython-3.77.2-linux-x86_64-gnu"),
    ],
)
def test_other_managers_are_known(tmp_path: Path, variable: str, place: str) -> None:
    found = tmp_path / place / "bin" / "python3.77"
    python(found, f"3.77 {found}")
    assert newest({variable: str(tmp_path)}, (77,)) == str(found)


def test_program_of_another_version_or_without_an_answer_is_none(tmp_path: Path) -> None:
    python(tmp_path / "a" / "python3.77", "3.11 /usr/bin/python3.11")
    python(tmp_path / "b" / "python3.77", "")
    (tmp_path / "c" / "python3.77").mkdir(parents=True)
    environ = {"PATH": ":".join(str(tmp_path / each) for each in "abc"), "HOME": str(tmp_path)}
    assert list(candidates(77, environ))
    assert newest(environ, (77,)) is None
