"""Live displays, as a person sees them on a terminal: `wait`, `apply --wait`, `top`, `store copy`, `graph`."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from functools import partial

import pytest
import trio
import trio.testing
from rich.console import Console

import headway
from headway.cli._bars import Bars
from headway.cli._scrape import scrape
from headway.cli._top_screen import screen
from headway.cli._top_shown import Shown, cells
from headway.client import Client
from headway.engine import open_engine
from headway.errors import Unavailable
from headway.observe import ControllerState, Metrics, open_pages, states_in
from headway.storage import Progress
from tests.cli.conftest import CORE
from tests.cli.screen import open_screen
from tests.cli.served import TEAM, Member, Team, apps
from tests.cli.terminal import Terminal

STAFFED = Team(members=[Member(login="ada")])


@pytest.fixture
async def client(server: str) -> AsyncIterator[Client]:
    async with headway.connect(server, *apps) as client:
        yield client


# --- wait and apply --wait ----------------------------------------------------


async def test_wait_shows_the_present_state_until_the_condition_holds(server: str, client: Client) -> None:
    """The line is gone at the end. Only the result stays."""
    await client.apply(TEAM.new("core", Team(note="nobody yet")))
    async with open_screen("wait", "team", "core", "--for", "Staffed", server=server) as shown:
        text = await shown.until("nobody yet")
        assert "Team core Staffed teams says Staffed=FALSE (nobody yet)" in " ".join(text.split())
        assert not shown.cursor_is_visible
        await client.apply(TEAM.new("core", STAFFED))
        assert await shown.end() == 0
        assert shown.text == "Team core: Staffed"
        assert shown.cursor_is_visible


async def test_apply_waits_for_each_resource(headway: Terminal) -> None:
    """Without a terminal, there is one more line for each resource, when all of them are done."""
    both = CORE + "---\n" + CORE.replace("name: core", "name: docs")
    done = await headway("apply", "-f", "-", "--wait", "Staffed", "--within", "30", stdin=both)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Team core created\nTeam docs created\nTeam core: Staffed\nTeam docs: Staffed\n"
    done = await headway("apply", "-f", "-", "--wait", "Staffed", "-o", "json", stdin=CORE)
    assert json.loads(done.stdout)[0]["name"] == "core"


async def test_apply_reports_each_resource_that_is_not_ready_in_time(headway: Terminal) -> None:
    """It exits with 6. Everything has been stored."""
    both = CORE + "---\ntype: staff.v1.Team\nname: empty\ndata: {}\n"
    done = await headway("apply", "-f", "-", "--wait", "Staffed", "--within", "0.5", stdin=both)
    assert done.returncode == 6
    assert done.stdout == "Team core created\nTeam empty created\nTeam core: Staffed\n"
    assert done.stderr == "Error: Team empty: Staffed does not hold after 0.5 s: teams says Staffed=FALSE\n"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--wait", "Ready", "--dry-run"), "--wait and --dry-run exclude each other"),
        (("--wait", "deleted"), "an applied resource is not deleted"),
        (("--wait", "Ready=perhaps"), "write a condition, such as Ready, Ready=false or teams/Ready\n"),
        (("--within", "1"), "--within requires --wait"),
    ],
)
async def test_apply_refuses_options_that_contradict_each_other(
    options: tuple[str, ...], problem: str, headway: Terminal
) -> None:
    """Nothing is stored."""
    done = await headway("apply", "-f", "-", *options, stdin=CORE)
    assert done.returncode == 2
    assert problem in done.stderr
    assert (await headway("get", "team", "core")).returncode == 3


# --- top ----------------------------------------------------------------------


@pytest.fixture
async def pages() -> AsyncIterator[tuple[str, Client]]:
    """Return the address of the metrics page of a running engine, and its client."""
    metrics = Metrics()
    async with open_engine("memory:", *apps, report=metrics) as engine:
        metrics.watch(engine.status)
        async with open_pages("127.0.0.1:0", engine.status, metrics) as address:
            yield address, engine.client


async def test_top_shows_the_controllers_until_q_is_pressed(pages: tuple[str, Client]) -> None:
    """It follows what happens. At the end, the terminal is as it was before."""
    address, client = pages
    async with open_screen("top", address, "--interval", "0.1") as shown:
        await shown.until(lambda text: "0 not ready" in text and "teams" in text and "RESTING" in text)
        await client.apply(TEAM.new("core", STAFFED))
        text = await shown.until(lambda text: _row(text, "staff/teams")[-1:] == ["1"])
        assert _row(text, "staff/teams")[:2] == ["staff/teams", "running"]
        assert shown.has_screen_of_its_own
        shown.press("xq")
        assert await shown.end() == 0
        assert not shown.has_screen_of_its_own
        assert shown.cursor_is_visible


def _row(text: str, name: str) -> list[str]:
    return next((line.split() for line in text.splitlines() if line.strip().startswith(name)), [])


HOSTILE = {
    b"hello\r\n\r\n": "the answer is not HTTP",
    b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n": "has status 404",
    b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{}{}{}{}": "does not answer with the metrics",
    b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + b"# x\n" * 2000: "more than",
    b"": "; is it the address of --metrics?",
    b"HTTP/1.1 200 OK\r\nContent-Length: 27\r\n\r\nheadway_controller_ready 1\n": "does not answer with the metrics",
}


@pytest.mark.parametrize("answer", HOSTILE)
async def test_top_survives_any_answer(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what is wrong with the page."""
    monkeypatch.setattr("headway.cli._scrape._MOST_BYTES", 5000)

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some(4096)
            await stream.send_all(answer)

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        port = listener.socket.getsockname()[1]
        with pytest.raises(Unavailable) as raised:
            await scrape(f"127.0.0.1:{port}")
        assert HOSTILE[answer] in str(raised.value)
        nursery.cancel_scope.cancel()


def test_rates_are_counted_between_two_looks() -> None:
    """A counter that has begun again counts from 0. Failed reconciles count in both rates."""
    before = ControllerState("p", "c", reconciles={"done": 10, "failed": 2})
    after = ControllerState("p", "c", reconciles={"done": 40, "failed": 8, "permanent": 4})
    after.rates_since(before, 2.0)
    assert (after.rate, after.failures) == (20.0, 5.0)
    restarted = ControllerState("p", "c", reconciles={"done": 1})
    restarted.rates_since(after, 2.0)
    assert restarted.rate == 0


def test_priming_is_shown_with_how_far_it_is() -> None:
    """A controller that is not ready stands out, and text from a page cannot move the cursor."""
    labels = {"controller": "a\x1b[2Jb"}
    found = states_in(
        "p",
        {
            "headway_controller_ready": [(labels, 0.0)],
            "headway_controller_phase": [(labels | {"phase": "priming"}, 1.0), (labels | {"phase": "running"}, 0.0)],
            "headway_cache_primed": [(labels | {"type": "T"}, 1.0), (labels | {"type": "U"}, 0.0)],
            "headway_cache_resources": [(labels | {"type": "T"}, 40.0), (labels | {"type": "U"}, 2.0)],
            "headway_cache_lag_revisions": [(labels | {"type": "T"}, 1.0), (labels | {"type": "U"}, 7.0)],
            "headway_queue_keys": [(labels | {"state": "ready"}, 3.0), (labels | {"state": "resting"}, 4.0)],
        },
    )
    [state] = found
    assert "\x1b" not in state.name
    assert cells(state)[1:] == ["priming 1 of 2 types", "", "", "3", "0", "4", "0", "0.0 s", "7", "42"]
    output = io.StringIO()
    shown = Shown(["p", "q"], 1.0, states={"p": [state]}, problems={"q": "no answer from q"})
    Console(file=output, width=140).print(screen(shown))
    assert "1 controllers, 1 not ready" in output.getvalue()
    assert "no answer from q" in output.getvalue()


# --- Bars ---------------------------------------------------------------------


def test_a_bar_has_the_amount_the_rate_and_the_time_left() -> None:
    """Steps that are done have the time taken, and a step that counts nothing is done when the next one begins."""
    now = [0.0]
    bars = Bars(get_time=lambda: now[0])
    bars(Progress("the store's own check"))
    for seconds in range(6):
        now[0] = float(seconds)
        bars(Progress("copying [bold]staff.Team", seconds * 1000, 10_000))
    text = _printed(bars)
    assert "✓ the store's own check" in text
    assert "copying [bold]staff.Team" in text
    assert "5,000/10,000" in text
    assert "1,000/s" in text
    assert "00:05 left" in text
    now[0] = 9.0
    bars(Progress("copying [bold]staff.Team", 10_000, 10_000))
    bars(Progress("copying nothing", 0, 0))
    bars(Progress("copying bytes", 2_500_000, 5_000_000, "bytes"))
    text = _printed(bars)
    assert "left" not in text.splitlines()[1]
    assert "✓ copying nothing" in text
    assert "2.5 MB/5.0 MB" in text


def test_bars_fit_a_small_terminal() -> None:
    """Of many steps, the latest are shown."""
    bars = Bars()
    for number in range(30):
        bars(Progress(f"step {number}.", 0, 5))
        bars(Progress(f"step {number}.", 5, 5))
    lines = _printed(bars).splitlines()
    assert len(lines) == 8
    assert "step 29." in lines[-1]


def _printed(bars: Bars) -> str:
    output = io.StringIO()
    Console(file=output, width=120).print(bars.shown())
    return output.getvalue()


# --- graph --------------------------------------------------------------------


# --- rich ---------------------------------------------------------------------
