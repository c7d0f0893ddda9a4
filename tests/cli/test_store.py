"""`headway store`: checking a store, copying one, and holding one's own to its promises."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from contextlib import closing

import pytest
import trio

from headway.engine import open_engine
from headway.resource import Kind
from headway.storage import EtcdBackend, SqliteBackend, Within, copy_store, mark_unfinished
from headway.testing._conformance_tools import KIND, fill, put, thing
from tests.cli.conftest import ROOT, Started
from tests.cli.served import ACCOUNT, Account, apps
from tests.cli.terminal import Terminal
from tests.helpers.fake_etcd import serving_etcd


async def stored(path: str, count: int) -> str:
    async with SqliteBackend(path) as store:
        await fill(store, count)
        await put(store, thing("last", kind=("a", "First")))
        await store.raise_fence("c", "m", 1, 1)
        return store.position.store_id


async def test_a_store_that_is_whole_is_said_to_be(terminal: Terminal) -> None:
    """The line says which store, where it stands and how much it holds; what is looked at goes to stderr."""
    id = await stored("staff.db", 40)
    done = await terminal("store", "check", "sqlite:staff.db")

    assert done.returncode == 0, done.stderr
    assert done.stdout == (f"store {id} at revision 4, history from 0: 41 resources of 2 kinds; no problems found\n")
    assert "conformance.Thing: list, reads, watch and history" in done.stderr
    done = await terminal("store", "check", "-o", "json", "sqlite:staff.db")
    assert json.loads(done.stdout) == {
        "store_id": id,
        "revision": 4,
        "oldest": 0,
        "resources": {"a.First": 1, "conformance.Thing": 40},
        "problems": [],
    }
    assert done.stderr == ""


async def test_what_is_wrong_is_said_by_the_exit_code_too(terminal: Terminal) -> None:
    """An unfinished copy here: 7, and a sentence for each thing that is wrong."""
    async with SqliteBackend("staff.db") as store:
        await mark_unfinished(store, "another")
    done = await terminal("store", "check", "sqlite:staff.db")

    assert done.returncode == 7
    assert done.stdout.startswith("a copy into this store was not finished: run the same copy again\n")
    assert done.stdout.endswith("1 resources of 1 kinds; problems found: 1\n")
    done = await terminal("store", "check", "sqlite:staff.db", "-o", "json")
    assert done.returncode == 7
    assert len(json.loads(done.stdout)["problems"]) == 1


@pytest.mark.parametrize("command", [("check",), ("copy",)])
async def test_no_store_is_made_where_one_is_to_be_read(command: tuple[str], terminal: Terminal) -> None:
    """A path at which there is none, a store in memory and what is no url are wrong usage, and nothing is touched."""
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


@pytest.mark.parametrize("command", [("check",), ("copy",)])
async def test_no_store_is_made_in_etcd_where_one_is_to_be_read(command: tuple[str], terminal: Terminal) -> None:
    """A prefix that holds none is wrong usage, said without the password, and stays empty; a store at it is read."""
    async with serving_etcd() as (fake, endpoint):
        fake.token = "of ada"
        rest = ("sqlite:to.db",) if command == ("copy",) else ()
        done = await terminal("store", *command, f"etcd://ada:secret@{endpoint}/nowhere", *rest)

        assert done.returncode == 2, done.stderr
        assert f"no store found at etcd://{endpoint}/nowhere" in done.stderr
        assert "secret" not in done.stderr
        assert not fake.state.keys
        assert "/etcdserverpb.KV/Txn" in fake.calls
        assert os.listdir() == []

        async with EtcdBackend(f"etcd://ada:secret@{endpoint}/staff") as store:
            await put(store, thing("first"))
        done = await terminal("store", *command, f"etcd://ada:secret@{endpoint}/staff", *rest)
        assert done.returncode == 0, done.stderr
        assert "1 resources of 1 kinds" in done.stdout


async def test_an_etcd_that_does_not_answer_is_not_one_without_a_store(terminal: Terminal) -> None:
    """5: the command may be tried again."""
    done = await terminal("store", "check", "etcd://127.0.0.1:1/staff")

    assert done.returncode == 5
    assert "127.0.0.1:1" in done.stderr


async def test_a_store_is_checked_beside_the_engine_that_has_it(terminal: Terminal, start: Started) -> None:
    """By another process, which changes nothing: the engine goes on, and the file has been opened once."""
    async with open_engine("sqlite:staff.db", *apps) as engine:
        for number in range(20):
            await engine.client.apply(ACCOUNT.new(f"account-{number}", Account(login="a")))
        process = start("store", "check", "sqlite:staff.db")
        out, errors = await trio.to_thread.run_sync(process.communicate)

        assert process.returncode == 0, errors
        said = re.fullmatch(
            r"store (\w+) at revision (\d+), history from 0: (\d+) resources of \d+ kinds; no problems found\n", out
        )
        assert said
        assert int(said[3]) >= 20
        assert "reading the file in its current state, since it can't be opened" in errors
        assert f"staff.db is held by process {os.getpid()}" in errors
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


async def test_a_copy_is_not_made_of_a_store_that_is_held(terminal: Terminal) -> None:
    """A server has the file: 5, and who."""
    async with SqliteBackend("staff.db"):
        done = await terminal("store", "copy", "sqlite:staff.db", "sqlite:copy.db")

    assert done.returncode == 5
    assert "staff.db is held by" in done.stderr
    assert "copy.db" not in os.listdir()


async def test_a_copy_that_is_under_way_is_found_unfinished(terminal: Terminal) -> None:
    """Also by who reads beside the process that copies."""
    async with SqliteBackend("staff.db") as store:
        await mark_unfinished(store, "another")
        done = await terminal("store", "check", "sqlite:staff.db")

    assert done.returncode == 7
    assert done.stdout.startswith("a copy into this store was not finished: run the same copy again\n")


async def test_a_backup_and_a_damaged_file_are_read_as_they_stand(terminal: Terminal) -> None:
    """Neither can be opened: the one is whole, and of the other everything is said that is wrong."""
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


async def test_a_copy_goes_there_and_says_so(terminal: Terminal) -> None:
    """Counts go to stderr while it copies, and one line to stdout; the two are alike, and another store each."""
    id = await stored("staff.db", 700)
    done = await terminal("store", "copy", "sqlite:staff.db", "sqlite:copy.db")

    assert done.returncode == 0, done.stderr
    assert done.stderr == "a.First: 1\nconformance.Thing: 500\nconformance.Thing: 700\n"
    said = re.fullmatch(
        rf"store {id} copied to store (\w+), and compared: 701 resources of 2 kinds, 701 written now; "
        r"1 fences raised\n",
        done.stdout,
    )
    assert said
    async with SqliteBackend("copy.db") as copy:
        assert copy.position.store_id == said[1] != id
        assert len((await copy.list(KIND, Within()))[0]) == 700
    done = await terminal("store", "copy", "-o", "json", "sqlite:staff.db", "sqlite:again.db")
    assert json.loads(done.stdout)["resources"] == {"a.First": 1, "conformance.Thing": 700}
    assert done.stderr == ""


async def test_a_copy_into_what_is_not_empty_is_refused(terminal: Terminal) -> None:
    """1, with what it holds; and it stays as it was."""
    await stored("staff.db", 3)
    await stored("full.db", 5)
    done = await terminal("store", "copy", "sqlite:staff.db", "sqlite:full.db")

    assert done.returncode == 1
    assert "is not empty: it holds a.First, conformance.Thing" in done.stderr
    async with SqliteBackend("full.db") as full:
        assert len((await full.list(KIND, Within()))[0]) == 5


async def test_a_copy_that_was_stopped_goes_on(terminal: Terminal) -> None:
    """Run again, the same command writes what was missing."""
    await stored("staff.db", 700)

    class Stopped(Exception):
        pass

    def stop(_: Kind, count: int) -> None:
        if count == 500:
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


async def test_a_store_of_ones_own_is_held_to_its_promises(stores: str, terminal: Terminal) -> None:
    """A line for each claim, whether it holds and how long that took; those that aren't made are said."""
    done = await terminal("store", "conformance", f"{stores}:memory", "--only", "fence", "--only", "reopening")

    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"holds    +0\.\d\d s  a_fence_is_raised_by_a_commit", lines[0])
    assert "lacking    0.00 s  fences_outlive_a_reopening" in lines
    assert re.fullmatch(r"\d+ of \d+ claims hold, 3 left out", lines[-1])
    done = await terminal("store", "conformance", f"{stores}:open_sqlite", "--only", "wins")
    assert done.stdout.endswith("1 of 1 claims hold\n")


async def test_a_broken_promise_is_named(stores: str, terminal: Terminal) -> None:
    """With what was claimed and what is so instead; the others are looked at all the same, and it ends with 7."""
    done = await terminal("store", "conformance", f"{stores}:lowers", "--only", "fence")

    assert done.returncode == 7
    assert (
        "  a_fence_that_is_not_above_is_refused\n"
        "                   claimed: A raise to the same fence, a lower number or a lower term is FenceLowered: it "
        "makes no revision and leaves the fence as it is.\n"
        "                   but: a raise to (3, 4) succeeded, expected FenceLowered\n"
    ) in done.stdout
    assert " don't\n" in done.stdout
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
async def test_what_opens_no_store_is_wrong_usage(reference: str, problem: str, terminal: Terminal) -> None:
    """2, and what would be right."""
    done = await terminal("store", "conformance", reference)

    assert done.returncode == 2
    assert problem in done.stderr


async def test_only_what_no_check_is_called_is_wrong_usage(stores: str, terminal: Terminal) -> None:
    """A word that is in no name would hold a store to nothing."""
    done = await terminal("store", "conformance", f"{stores}:memory", "--only", "unicorns")

    assert done.returncode == 2
    assert "no name of a check contains this" in done.stderr
