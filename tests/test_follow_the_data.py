"""The page that follows a write to its reconcile lists the files whose code runs, and their number stays small."""

from __future__ import annotations

import gc
import math
import re
import sys
from pathlib import Path
from types import FrameType

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import headway
from headway import events, field

ENGINE = Path(headway.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "follow-the-data.md"
MOST_FILES = 30
MOST_LINES = 6_000


@headway.message
class Team:
    size: int = field(1)


def listed() -> tuple[list[str], list[str]]:
    """Return the files that the page lists as on the path, and those that it lists as beside the path."""
    path, _, beside = PAGE.read_text().partition("## Beside the path")
    return [re.findall(r"`([\w/]+\.py)`", part.replace("`tests/", "")) for part in (path, beside)]  # type: ignore[return-value]  # two of them


async def ran(clock: MockClock) -> set[str]:
    """Write a resource in a running engine, and return the files whose code runs until its reconcile begins."""
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)
    begun = trio.Event()
    found: set[str] = set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(f"{ENGINE}/"):
            found.add(Path(frame.f_code.co_filename).relative_to(ENGINE).as_posix())

    @app.controller(manages=team)
    async def reconcile(rt: headway.Runtime, request: headway.Request) -> None:  # noqa: ARG001  # it only has to begin
        sys.setprofile(None)
        begun.set()

    async with headway.open_engine("memory:", app, report=events.ignore) as engine:
        # The streams of other types report the first write, and the next one only after their pace, which never passes.
        clock.autojump_threshold = math.inf
        await wait_all_tasks_blocked()
        written = await engine.client.write(team.new("core", Team(size=1)))
        await engine.wait_idle()
        await wait_all_tasks_blocked()
        begun = trio.Event()
        written.data.size = 2
        # A collection during the write would close the coroutines of earlier tests, whose files would be found too.
        gc.collect()
        gc.disable()
        sys.setprofile(profile)
        try:
            await engine.client.write(written)
            await begun.wait()
        finally:
            sys.setprofile(None)
            gc.enable()
            clock.autojump_threshold = 0
    return {each for each in found if not each.startswith("_gen/")}


async def test_page_lists_the_files_that_run_from_a_write_to_its_reconcile(autojump_clock: MockClock) -> None:
    """Virtual time keeps periodic work, such as checks of the store's health, out of the way."""
    path, _ = listed()
    assert len(path) == len(set(path))
    assert await ran(autojump_clock) == set(path)


def test_every_listed_file_exists() -> None:
    missing = [each for part in listed() for each in part if not (ENGINE / each).exists()]
    assert not missing


def test_path_of_a_write_stays_within_its_bounds() -> None:
    """A reader can follow a write through this many files and lines. Lower the bounds when the path gets shorter."""
    path, _ = listed()
    assert len(path) <= MOST_FILES
    assert sum(len((ENGINE / each).read_text().splitlines()) for each in path) <= MOST_LINES
