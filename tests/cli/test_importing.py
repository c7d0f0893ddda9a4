"""Commands whose APP is a module that runs its program at the import, or takes long to import."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
import trio

from headway.cli import _named
from tests.cli.terminal import Terminal

APP = """import trio
import headway

app = headway.App("staff")


async def main():
    await trio.sleep_forever()


"""
STARTS = {"trio": "trio.run(main)\n", "guest": "trio.lowlevel.start_guest_run(main)\n"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory of the terminal, in which commands find modules."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.mark.parametrize("start", STARTS)
async def test_module_that_starts_trio_is_refused(terminal: Terminal, folder: Path, start: str) -> None:
    """It would run in place of the command, or never end."""
    file = folder / f"starts_{start}.py"
    file.write_text(APP + STARTS[start])
    run = trio.run
    done = await terminal("serve", f"starts_{start}:app", "--listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f'  File "{file}", line 11, in <module>',
        f"    {STARTS[start].rstrip()}",
        f"Error: importing starts_{start} starts Trio, so it would run its program in place of this command: write "
        '`if __name__ == "__main__":` above that line, and indent it',
    ]
    assert trio.run is run


async def test_slow_import_says_where_it_is(terminal: Terminal, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module goes on once the command has said so. It lets the time pass that the command has set."""
    monkeypatch.setattr(_named, "SLOW", 1000.0)
    (folder / "slow.py").write_text(
        "import signal\nimport headway\n\ntell = signal.getsignal(signal.SIGALRM)\nheard = []\n\n\n"
        "def told(*about):\n    tell(*about)\n    heard.append(about)\n\n\nsignal.signal(signal.SIGALRM, told)\n"
        "assert 900 < signal.setitimer(signal.ITIMER_REAL, 0.001)[0] <= 1000\n"
        "while not heard:\n    pass\n" + 'app = headway.App("staff")\n'
    )
    before = signal.getsignal(signal.SIGALRM)
    done = await terminal("graph", "slow:app")
    assert done.returncode == 0
    assert done.stderr.splitlines()[0] == "importing slow has taken 1000 s so far, and the command waits for it:"
    assert f'  File "{folder}/slow.py", line ' in done.stderr
    assert "importlib" not in done.stderr
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
