"""`headway serve` keeps garbage collections away from what it has primed, unless it is told not to."""

from __future__ import annotations

import gc
import sys

import pytest
import trio

import headway
from headway.cli._serve import serve
from headway.cli._serving import ProcessOptions, Serving
from headway.rpc import Limits
from tests.helpers.declared import Note

pytestmark = pytest.mark.usefixtures("nothing_frozen")


@pytest.mark.parametrize(("options", "wanted"), [([], True), (["--gc-freeze"], True), (["--no-gc-freeze"], False)])
def test_it_is_on_by_default(options: list[str], wanted: bool) -> None:
    assert serve.make_context("serve", ["staff:app", *options]).params["gc_freeze"] is wanted


@pytest.mark.parametrize("wanted", [True, False])
async def test_the_server_does_as_the_option_says(wanted: bool) -> None:
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

    options = ProcessOptions(None, 20.0, verbose=False, gc_freeze=wanted)
    serving = Serving([app], "memory:", ["127.0.0.1:0"], None, None, None, options=options, limits=Limits())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serving.serve)
        with trio.fail_after(30):
            await initialized.wait()
        nursery.cancel_scope.cancel()
    assert collecting == [not wanted]
    assert gc.isenabled()
    assert any(each is sys.modules for each in gc.get_objects()), "nothing is frozen"
