"""How a program sets up tracing, and what an engine imports without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.engine._around import BARE, tracing_by
from headway.errors import InvalidArgument
from headway.run import ChangeMapper
from headway.service import WatchDecoder
from tests.tracing.spans import Spans

PROGRAM = """
import sys
import trio
import headway
from tests.tracing.staff import Staff, Team

async def names(**options):
    staff = Staff()
    async with headway.open_engine("memory:", staff.app, **options) as engine:
        await engine.wait_idle()
        await engine.client.write(staff.team.new("core", Team(size=1)))
        await engine.wait_idle()

trio.run(names)
assert not [name for name in sys.modules if name.startswith(("opentelemetry", "headway.tracing"))]

import opentelemetry.trace
trio.run(names)
assert "headway.tracing" not in sys.modules, "no provider is set"

from tests.tracing.spans import Spans
spans = Spans()
opentelemetry.trace.set_tracer_provider(spans.provider)
async def traced():
    with spans.root():
        await names()
trio.run(traced)
print(sorted({each.name for each in spans.all()}))
"""


@pytest.mark.wide
def test_engine_uses_the_provider_that_the_program_has_set_and_imports_nothing_without_one() -> None:
    """Neither before OpenTelemetry is imported, nor while the program has set no provider."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("['commit', 'deliver', 'map', 'reconcile', 'wait', 'write']\n", "")


def test_nothing_stands_in_an_untraced_engine() -> None:
    """Every part is the original one."""
    assert tracing_by(None) is BARE
    part: Any = object()
    for given in (BARE.store, BARE.channel, BARE.services, BARE.definition):
        assert given(part) is part
    assert (BARE.new_mapper, BARE.decoder) == (ChangeMapper, WatchDecoder)
    assert tracing_by(Spans().provider) is not BARE


@pytest.mark.parametrize("given", ["yes", 7, object()])
def test_argument_that_is_no_provider_is_refused(given: object) -> None:
    with pytest.raises(InvalidArgument, match="tracing must be a TracerProvider of OpenTelemetry, not"):
        tracing_by(given)  # type: ignore[arg-type]  # that is the test
