"""`headway store`, which checks and copies stores, and tests implementations of stores."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from contextlib import closing

import pytest
import trio

from headway.engine import open_engine
from headway.storage import Progress, SqliteBackend, Within, copy_store, mark_unfinished
from headway.testing.conformance import KIND, fill, put, thing
from tests.cli.conftest import ROOT, Started
from tests.cli.served import ACCOUNT, Account, apps
from tests.cli.terminal import Terminal


async def stored(path: str, count: int) -> str:
    async with SqliteBackend(path) as store:
        await fill(store, count)
        await put(store, thing("last", kind=("a", "First")))
        await store.raise_fence("c", "m", 1, 1)
        return store.position.store_id


async def test_check_of_a_consistent_store_prints_a_summary(terminal: Terminal) -> None:
    """The line has the id, the revision and the number of resources. Progress goes to stderr."""
    id = await stored("staff.db", 40)
    done = await terminal("store", "check", "sqlite:staff.db")

    assert done.returncode == 0, done.stderr
    assert done.stdout == (f"store {id} at revision 4, history from 0: 41 resources of 2 kinds; no problems found\n")
    assert done.stderr == (
        "checking a.First\nchecking a.First: 1\nchecking conformance.Thing\nchecking conformance.Thing: 40\n"
        "checking owners: 41\nthe store's own check\n"
    )
    done = await terminal("store", "check", "-o", "json", "sqlite:staff.db")
    assert json.loads(done.stdout) == {
        "store_id": id,
        "revision": 4,
        "oldest": 0,
        "resources": {"a.First": 1, "conformance.Thing": 40},
        "problems": [],
    }
    assert done.stderr == ""


async def test_check_of_an_inconsistent_store_ends_with_7(terminal: Terminal) -> None:
    """This store is an unfinished copy. There is one sentence for each problem."""
    async with SqliteBackend("staff.db") as store:
        await mark_unfinished(store, "another")
    done = await terminal("store", "check", "sqlite:staff.db")

    assert done.returncode == 7
    assert done.stdout.startswith("a copy into this store was not finished: run the same copy again\n")
    assert done.stdout.endswith("1 resource of 1 kind; problems found: 1\n")
    done = await terminal("store", "check", "sqlite:staff.db", "-o", "json")
    assert done.returncode == 7
    assert len(json.loads(done.stdout)["problems"]) == 1


@pytest.mark.parametrize("command", [("check",), ("copy",)])
async def test_commands_that_read_a_store_create_none(command: tuple[str], terminal: Terminal) -> None:
    """A path without a store, a store in memory and an invalid URL are wrong usage. Nothing is created."""
    rest = ("sqlite:to.db",) if command == ("copy",) else ()
    for url, problem in (
        ("sqlite:none.db", "no store found at sqlite:none.db"),
        ("memory:", "is a new, empty store"),
        ("none.db", "is not a store URL"),
    ):
        done = await terminal("store", *command, url, *rest)
        assert done.returncode == 2
        assert problem in done.stderr
    assert os.listdir() == []
    await trio.Path("empty.db").touch()
    done = await terminal("store", *command, "sqlite:empty.db", *rest)
    assert done.returncode == 2
    assert "no store found at sqlite:empty.db" in done.stderr
    assert os.listdir() == ["empty.db"]
    assert os.stat("empty.db").st_size == 0


async def test_store_is_checked_while_an_engine_has_it_open(terminal: Terminal, start: Started) -> None:
    """Another process checks the file and changes nothing. The engine continues."""
    async with open_engine("sqlite:staff.db", *apps) as engine:
        for number in range(20):
            await engine.client.apply(ACCOUNT.new(f"account-{number}", Account(login="a")))
        process = start("store", "check", "sqlite:staff.db")
        out, errors = await trio.to_thread.run_sync(process.communicate)

        assert process.returncode == 0, errors
        said = re.fullmatch(
            r"store (\w+) at revision (\d+), history from 0: (\d+) resources? of \d+ kinds?; no problems found\n", out
        )
        assert said
        assert int(said[3]) >= 20
        assert errors.startswith(f"process {os.getpid()} on ")
        assert errors.endswith(" has the store open, so its file is only read\n")
        done = await terminal("store", "check", "-o", "json", "sqlite:staff.db")
        assert json.loads(done.stdout)["resources"]["staff.Account"] == 20
        assert json.loads(done.stdout)["store_id"] == said[1]
        assert (done.returncode, done.stderr) == (0, "")
        with closing(sqlite3.connect("staff.db")) as file:
            assert file.execute("SELECT count(*) FROM incarnations").fetchone() == (1,)
            file.execute("UPDATE resources SET owner_uid = 'somebody' WHERE name = 'account-7'")
            file.commit()
        done = await terminal("store", "check", "sqlite:staff.db")
        assert done.returncode == 7
        assert "account-7: its row says owner somebody, but holds another\n" in done.stdout
        assert done.stdout.endswith("; problems found: 1\n")


async def test_backup_and_damaged_file_are_checked_in_their_current_state(terminal: Terminal) -> None:
    """Neither can be opened. The backup is consistent, and all problems of the damaged file are reported."""
    id = await stored("staff.db", 40)
    assert (await terminal("backup", "sqlite:staff.db", "staff.backup")).returncode == 0
    done = await terminal("store", "check", "sqlite:staff.backup")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"store {id} at revision 4, history from 0: 41 resources of 2 kinds; no problems found\n"

    with closing(sqlite3.connect("staff.db")) as file:
        file.execute("DELETE FROM meta WHERE key = 'head'")
        file.commit()
    done = await terminal("store", "check", "sqlite:staff.db")
    assert done.returncode == 7
    assert done.stdout == ("meta: its table meta has no head\nthe store's id can't be read; problems found: 1\n")
    await trio.Path("diary.db").write_text("Dear diary, " * 100)
    done = await terminal("store", "check", "sqlite:diary.db")
    assert done.returncode == 5
    assert "diary.db is not a Headway store" in done.stderr


async def test_copy_prints_progress_and_a_summary(terminal: Terminal) -> None:
    """Progress goes to stderr, and one line to stdout. The copy has the same content and another id."""
    id = await stored("staff.db", 700)
    done = await terminal("store", "copy", "sqlite:staff.db", "sqlite:copy.db")

    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        "copying a.First: 1\ncopying conformance.Thing: 700\ncomparing a.First: 1\ncomparing conformance.Thing: 700\n"
    )
    said = re.fullmatch(
        rf"store {id} copied to store (\w+), and compared: 701 resources of 2 kinds, 701 written now; "
        r"1 fence raised\n",
        done.stdout,
    )
    assert said
    async with SqliteBackend("copy.db") as copy:
        assert copy.position.store_id == said[1] != id
        assert len((await copy.list(KIND, Within()))[0]) == 700
    done = await terminal("store", "copy", "-o", "json", "sqlite:staff.db", "sqlite:again.db")
    assert json.loads(done.stdout)["resources"] == {"a.First": 1, "conformance.Thing": 700}
    assert done.stderr == ""


async def test_interrupted_copy_continues(terminal: Terminal) -> None:
    """The same command writes only the missing resources."""
    await stored("staff.db", 700)

    class Stopped(Exception):
        pass

    def stop(progress: Progress) -> None:
        if progress.done == 500:
            raise Stopped

    async with SqliteBackend("staff.db") as source, SqliteBackend("copy.db") as target:
        with pytest.raises(Stopped):
            await copy_store(source, target, progress=stop)
    done = await terminal("store", "copy", "sqlite:staff.db", "sqlite:copy.db")
    assert done.returncode == 0, done.stderr
    assert "701 resources of 2 kinds, 200 written now; 0 fences raised" in done.stdout


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.syspath_prepend(str(ROOT))
    return "tests.cli.stores"


async def test_conformance_checks_a_custom_store(stores: str, terminal: Terminal) -> None:
    """There is one line for each claim, with its result and its time. Claims that the store lacks are listed."""
    done = await terminal("store", "conformance", f"{stores}:memory", "--only", "fence", "--only", "reopening")

    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"holds    +0\.\d\d s  a_fence_is_raised_by_a_commit", lines[0])
    assert "lacking    0.00 s  fences_outlive_a_reopening" in lines
    assert re.fullmatch(r"\d+ of \d+ claims hold, 3 left out", lines[-1])
    done = await terminal("store", "conformance", f"{stores}:open_sqlite", "--only", "wins")
    assert done.stdout.endswith("1 of 1 claim holds\n")


async def test_conformance_shows_broken_claims_and_ends_with_7(stores: str, terminal: Terminal) -> None:
    """It shows the claim and the actual result. The other checks are run as well."""
    done = await terminal("store", "conformance", f"{stores}:lowers", "--only", "fence")

    assert done.returncode == 7
    assert (
        "  a_fence_that_is_not_above_is_refused\n"
        "                   claimed: A raise to the same fence, a lower number or a lower term is FenceLowered: it "
        "makes no revision and leaves the fence as it is.\n"
        "                   but: a raise to (3, 4) succeeded, expected FenceLowered\n"
    ) in done.stdout
    assert re.search(r"\d claims hold, \d+ (doesn't|don't)\n", done.stdout)
    done = await terminal("store", "conformance", f"{stores}:lowers", "--only", "not_above", "-o", "json")
    [said] = json.loads(done.stdout)
    assert said["claim"] == "a_fence_that_is_not_above_is_refused"
    assert said["failure"] == "a raise to (3, 4) succeeded, expected FenceLowered"
    assert done.returncode == 7


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("stores", "write module:name, such as mystore:open_my_store"),
        ("tests.cli.stores:nothing", "tests.cli.stores has no 'nothing'"),
        ("tests.cli.nowhere:memory", "module 'tests.cli.nowhere' not found"),
        ("tests.cli.stores:NOTHING", "7 cannot open a store: it must be a function"),
    ],
)
@pytest.mark.usefixtures("stores")
async def test_reference_that_opens_no_store_is_wrong_usage(reference: str, problem: str, terminal: Terminal) -> None:
    """The error says what is right."""
    done = await terminal("store", "conformance", reference)

    assert done.returncode == 2
    assert problem in done.stderr
