"""What a killed backup or restoration leaves behind is taken for nothing, and the next one removes it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from headway.errors import StoreUnusable
from headway.storage import backup_store, check_store, open_sqlite, restore_store, verify_file
from headway.testing.conformance import names
from tests.storage.sqlite_kit import filled

pytestmark = pytest.mark.skipif(os.name != "posix", reason="a process is killed as POSIX does it")

# The program kills itself at the given report of its progress, or when it gives a finished file its name.
BACK_UP = """
import os, signal, sys, trio
from functools import partial
from headway.storage import backup_store

reports = []

def progress(each):
    reports.append(each.step)
    if sys.argv[3] in (each.step, f"{each.step} {reports.count(each.step)}"):
        os.kill(os.getpid(), signal.SIGKILL)

trio.run(partial(backup_store, sys.argv[1], sys.argv[2], progress=progress))
"""
NAMING = """
import os, signal, sys, trio
from headway.storage import backup_store, restore_store

os.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
trio.run({"backup": backup_store, "restore": restore_store}[sys.argv[3]], sys.argv[1], sys.argv[2])
"""

STOPPED = {
    "a backup, before it copies": (BACK_UP, "copying 1"),
    "a backup, when it has copied": (BACK_UP, "copying 2"),
    "a backup, before it checks the copy": (BACK_UP, "checking the backup"),
    "a backup, before it names the file": (NAMING, "backup"),
    "a restoration, before it names the file": (NAMING, "restore"),
}


@pytest.mark.parametrize(
    ("program", "moment"),
    [pytest.param(*stop, id=name, marks=[pytest.mark.wide] * ("names" not in name)) for name, stop in STOPPED.items()],
)
async def test_file_of_a_killed_command_is_taken_for_nothing(tmp_path: Path, program: str, moment: str) -> None:
    """It may be whole, but nobody has checked it, or not even marked it as a backup."""
    store, backup = f"sqlite:{tmp_path}/a.db", tmp_path / "b"
    await filled(tmp_path / "a.db")
    if moment == "restore":
        await backup_store(store, tmp_path / "b0")
        store, given = f"sqlite:{backup}", [str(tmp_path / "b0"), f"sqlite:{backup}"]
    else:
        given = [store, str(backup)]
    done = await trio.run_process([sys.executable, "-c", program, *given, moment], check=False)
    assert done.returncode == -signal.SIGKILL
    left = tmp_path / "b.unfinished"
    assert "b" not in os.listdir(tmp_path)
    assert left.name in os.listdir(tmp_path)
    attempts: list[Callable[[], Awaitable[object]]] = [
        lambda: restore_store(left, f"sqlite:{tmp_path}/c.db"),
        lambda: backup_store(f"sqlite:{left}", tmp_path / "c"),
        lambda: check_store(f"sqlite:{left}"),
        lambda: verify_file(f"sqlite:{left}"),
        lambda: _open(left),
    ]
    for attempt in attempts:
        with pytest.raises(StoreUnusable, match="has left, and neither a backup nor a store: remove it, and run the"):
            await attempt()
    if moment == "restore":
        await restore_store(tmp_path / "b0", store)
        async with open_sqlite(backup) as restored:
            assert "n0" in await names(restored)
    else:
        await backup_store(store, backup)
        assert await check_store(f"sqlite:{backup}") == []
    assert not [each for each in os.listdir(tmp_path) if "unfinished" in each]


async def _open(path: Path) -> None:
    async with open_sqlite(path):
        pass
