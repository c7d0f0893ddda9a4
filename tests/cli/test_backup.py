"""`headway backup` and `headway restore`."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.cli.conftest import CORE, Started, address_of, interrupt
from tests.cli.terminal import Terminal, address

SERVE = ("serve", "tests.cli.served:app", "--store", "sqlite:staff.db", "--listen", "127.0.0.1:0")


@pytest.mark.wide
async def test_store_of_a_running_server_is_backed_up_and_restored(
    start: Started, terminal: Terminal, tmp_path: Path
) -> None:
    """Another process makes the backup. A server of the restored store has the resources of the backup."""
    serving = start(*SERVE)
    server = await trio.to_thread.run_sync(address_of, serving)
    assert (await terminal("apply", "-f", "-", stdin=CORE, server=server)).returncode == 0
    done = await terminal("backup", "sqlite:staff.db", "nightly")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("nightly: store ")
    assert (await terminal("delete", "team", "core", server=server)).returncode == 0
    refused = await terminal("restore", "nightly", "sqlite:staff.db", "--replace")
    assert refused.returncode == 5
    assert f"staff.db is held by process {serving.pid} on " in refused.stderr
    assert interrupt(serving)[0] == 0

    assert (await terminal("restore", "nightly", "sqlite:staff.db")).returncode == 1
    done = await terminal("restore", "nightly", "sqlite:staff.db", "--replace")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"the replaced store is in {tmp_path}/staff.db.replaced" in done.stdout
    again = terminal.start(*SERVE)
    assert (await terminal("get", "team", "core", "-o", "yaml", server=await address(again))).stdout == CORE


async def test_backup_and_restore_print_the_store_and_its_revision(terminal: Terminal) -> None:
    """A backup prints the store's id, revision and size. A restore prints which store and revision it was made from."""
    serving = terminal.start(*SERVE)
    await terminal("apply", "-f", "-", stdin=CORE, server=await address(serving))
    made = await terminal("backup", "sqlite:staff.db", "nightly")
    words = made.stdout.split()
    assert words[:2] == ["nightly:", "store"]
    assert words[3:6] == ["up", "to", "revision"]
    checked = await terminal("store", "check", "sqlite:nightly")
    assert (checked.returncode, checked.stderr) == (0, "this is a backup, so its file is only read\n")
    restored = await terminal("restore", "nightly", "sqlite:other.db")
    assert restored.stdout.startswith("sqlite:other.db: store ")
    assert restored.stdout.endswith(f"with the content of store {words[2]} at revision {words[6].rstrip(',')}\n")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("backup", "memory:", "b"), 2, "'memory:' is not a store in a file; write \"sqlite:PATH\""),
        (("backup", "sqlite:none.db", "b"), 2, "URL: no store found at sqlite:none.db"),
        (("restore", "none", "sqlite:new.db"), 2, "'none' does not exist"),
        (("backup", "sqlite:staff.db", "staff.db"), 2, "is the store itself"),
        (("backup", "sqlite:staff.db", "here"), 1, "here already exists; give another path, or replace it (--replac"),
        (("restore", "here", "sqlite:new.db"), 5, "is not a Headway store"),
        (("restore", "staff.db", "memory:"), 2, "is not a store in a file"),
        (("backup", "postgresql://a:s3cret@h/d", "b"), 2, "'postgresql://a:…@h/d' is not a store in a file; "),
        (("backup", "postgresql://h/d", "b"), 2, "`headway store copy` copies its store into a file"),
        (("restore", "staff.db", "sqlite:staff.db"), 2, "is the store itself"),
        (("backup", "sqlite:staff.db"), 2, "Missing argument 'FILE'"),
    ],
)
async def test_failed_backup_or_restore_prints_one_error(
    terminal: Terminal, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """The exit code is the usual one for the error."""
    serving = terminal.start(*SERVE)
    await address(serving)
    (tmp_path / "here").write_text("mine, " * 100)
    done = await terminal(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert (tmp_path / "here").read_text() == "mine, " * 100
