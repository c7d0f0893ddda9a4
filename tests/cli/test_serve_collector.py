"""`headway serve` keeps garbage collections away from the objects of priming, unless an option says otherwise."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace

import pytest
import trio

import headway
from tests.cli.terminal import Terminal
from tests.helpers.declared import Note

pytestmark = pytest.mark.usefixtures("nothing_frozen")


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ([], True),
        pytest.param(["--gc-freeze"], True, marks=pytest.mark.wide),
        pytest.param(["--no-gc-freeze"], False, marks=pytest.mark.wide),
    ],
)
async def test_collections_are_off_during_priming_unless_an_option_says_otherwise(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, options: list[str], wanted: bool
) -> None:
    """At the end of the server, collections are on again, and no object is excluded from them."""
    assert gc.isenabled()
    app = headway.App("collected")
    note = app.type("tests", "v1", "Collected", Note)
    collecting: list[bool] = []
    initialized = trio.Event()

    async def look(rt: headway.Runtime) -> None:
        assert rt.client is not None
        collecting.append(gc.isenabled())
        initialized.set()

    @app.controller(manages=note, initialiser=look)
    async def notes(rt: headway.Runtime, request: headway.Request) -> None:
        await rt.client.get(note, request.id)

    monkeypatch.setitem(sys.modules, "collected", SimpleNamespace(app=app))
    serving = terminal.start("serve", "collected:app", "--listen", "127.0.0.1:0", *options)
    with trio.fail_after(30):
        await initialized.wait()
    serving.scope.cancel()
    await serving.wait()
    assert collecting == [not wanted]
    assert gc.isenabled()
    assert any(each is sys.modules for each in gc.get_objects()), "the server's objects are still frozen"
