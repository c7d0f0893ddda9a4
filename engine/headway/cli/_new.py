"""The command `headway new`, which writes a first project from the files in `project/`."""

from __future__ import annotations

import keyword
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import click

from headway.cli._exits import Exit, Usage, fail
from headway.resource import RESERVED_GROUPS, type_problem

_FILES = {
    "program.py.txt": "NAME.py",
    "test.py.txt": "test_NAME.py",
    "team.yaml.txt": "team.yaml",
    "pyproject.toml.txt": "pyproject.toml",
    "README.md.txt": "README.md",
}


@click.command()
@click.argument("name")
def new(name: str) -> None:
    """Write a first project into the new folder NAME: an app, its proof, and a manifest.

    NAME is also the name of the app, of its Python module, and of the group of its types.
    """
    if problem := _problem(name):
        raise Usage(problem)
    folder = Path(name)
    try:
        folder.mkdir()
        for source, target in _FILES.items():
            text = files("headway.cli").joinpath("project", source).read_text(encoding="utf-8")
            # An app's name has hyphens where a module's has underscores.
            text = text.replace("NAME", name).replace("APP", name.replace("_", "-").strip("-"))
            folder.joinpath(target.replace("NAME", name)).write_text(text, encoding="utf-8")
    except FileExistsError:
        fail(Exit.REFUSED, f"Error: {name} already exists here; choose another name, or remove it")
    except OSError as error:
        fail(Exit.REFUSED, f"Error: {name} cannot be written: {error.strerror}")
    click.echo(f"{name}/ has an app and its proof. Next: cd {name} && python {name}.py && python -m pytest")


def _problem(name: str) -> str | None:
    """Return the problem with the name of a project, or None if it is valid."""
    if type_problem(name, "v1", "Team") or keyword.iskeyword(name):
        return f"NAME {name!r} must be snake_case, at least two characters, and no word of Python, such as 'staff'"
    if name in RESERVED_GROUPS:
        return f"NAME {name!r} is a group of types that Headway has reserved; try 'my_{name}'"
    if find_spec(name) is not None:
        return f"NAME {name!r} is the name of an installed module, which the project would hide; try 'my_{name}'"
    return None
