"""A traceback shows the program's own lines, and not those of the packages that it calls."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from headway.base import all_frames, own_frames, where_of

_CLIENT = """
def post(url):
    try:
        connect(url)
    except OSError as error:
        raise RuntimeError("no answer") from error

def connect(url):
    raise OSError(f"{url} refused")
"""
_OPERATOR = """
import {client}

def reconcile():
    {client}.post("api")
"""


@pytest.fixture(params=["a program in a folder", "an installed program"])
def operator(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a program that calls an installed package, which fails."""
    packages = tmp_path / "lib" / "site-packages"
    installed = request.param == "an installed program"
    client, name = f"client_{installed}", f"operator_{installed}"
    for folder, package, text in (
        (packages, client, _CLIENT),
        (packages if installed else tmp_path, name, _OPERATOR.format(client=client)),
    ):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text(text)
        monkeypatch.syspath_prepend(folder)
    return importlib.import_module(name)


def test_error_of_an_installed_package_is_shown_by_the_lines_of_the_program(operator: ModuleType) -> None:
    with pytest.raises(RuntimeError) as caught:
        operator.reconcile()
    error = caught.value
    # This test called it.
    error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ is not None else None
    assert where_of(error) == f"{operator.__file__}:5"
    line = operator.__name__.replace("operator", "client")
    assert own_frames(error).splitlines() == [
        "OSError: api refused",
        "-- and then:",
        f'  File "{operator.__file__}", line 5, in reconcile',
        f'    {line}.post("api")',
        "RuntimeError: no answer",
    ]
    assert "in connect" in all_frames(error)


def test_error_of_a_package_that_no_program_has_called_is_shown_by_the_lines_of_the_package(
    operator: ModuleType,
) -> None:
    client = importlib.import_module(operator.__name__.replace("operator", "client"))
    with pytest.raises(OSError, match="api refused") as caught:
        client.connect("api")
    caught.value.__traceback__ = caught.tb.tb_next
    assert where_of(caught.value) == f"{client.__file__}:9"
