"""`headway store migrate`."""

from __future__ import annotations

import json
import os

from headway.resource import Changes
from headway.storage import EtcdBackend, SqliteBackend, read_schemas, record_schemas, version_of
from headway.storage._unfinished import mark_unfinished
from tests.cli.terminal import Terminal
from tests.helpers.calls import Calls, take
from tests.helpers.declared import a_type
from tests.helpers.fake_etcd import serving_etcd
from tests.helpers.versions import ALONE, V1, V2, a_team, crew, roster, said, versions, without_converters

APP = "tests.cli.versioned:app"


async def filled(*, failing: bool) -> None:
    async with SqliteBackend("staff.db") as store:
        old = Calls(store, without_converters())
        await old.write(a_team(V1, roster("ada"), "a"))
        await old.write(a_team(V1, roster(color="raise" if failing else ""), "b"))
        await old.write(a_team(ALONE, roster(), "c"))
        await Calls(store, versions()).write(a_team(V2, crew(("ada", "lead")), "d"))


async def test_a_store_is_migrated_and_what_was_done_is_said(terminal: Terminal) -> None:
    """Progress goes to stderr; run again, nothing is left to do; json is for programs."""
    await filled(failing=False)
    done = await terminal("store", "migrate", APP, "--store", "sqlite:staff.db")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "1 resources are stored as tests.v9.Team, which no converter reaches"
    assert second.endswith(": 2 of 4 resources rewritten, 1 were in their storage version")
    assert done.stderr == "tests.Team: 4 looked at, 2 rewritten\n"
    done = await terminal("store", "migrate", APP, "--store", "sqlite:staff.db", "-o", "json")
    shown = json.loads(done.stdout)
    assert (shown["looked_at"], shown["rewritten"], shown["left"], done.stderr) == (4, 0, [], "")
    assert shown["apart"] == {"tests.v9.Team": 1}


async def test_what_is_left_is_named_and_said_by_the_exit_code(terminal: Terminal) -> None:
    await filled(failing=True)
    done = await terminal("store", "migrate", APP, "--store", "sqlite:staff.db")
    assert done.returncode == 7
    assert done.stdout.startswith(
        "tests.v1.Team default/default/b is left as it is: up= of tests.v1.Team \u2192 tests.v2.Team raised KeyError"
    )


async def test_what_cannot_be_migrated_is_wrong_usage(terminal: Terminal) -> None:
    """No store is made; a store that is copied into is no store yet, and one that is open is held by another."""
    for app, url, problem in (
        (APP, "sqlite:none.db", "there is no store at sqlite:none.db"),
        (APP, "memory:", "is a new, empty store"),
        (APP, "none.db", "names no store"),
        ("tests.cli.versioned:unconverted", "sqlite:none.db", "declares no converter"),
        ("tests.cli.versioned:nothing", "sqlite:none.db", "has no 'nothing'"),
    ):
        done = await terminal("store", "migrate", app, "--store", url)
        assert done.returncode == 2
        assert problem in done.stderr
    assert os.listdir() == []
    async with SqliteBackend("staff.db") as store:
        await mark_unfinished(store, "another")
        done = await terminal("store", "migrate", APP, "--store", "sqlite:staff.db")
        assert done.returncode == 5
    done = await terminal("store", "migrate", APP, "--store", "sqlite:staff.db")
    assert "was not finished" in done.stderr


async def test_a_program_that_would_misread_the_store_is_refused(terminal: Terminal) -> None:
    """Every difference is named, and nothing is rewritten."""
    await filled(failing=False)
    async with SqliteBackend("staff.db") as store:
        await record_schemas(store, without_converters())
        before = store.position.revision
    done = await terminal("store", "migrate", "tests.cli.versioned:misreading", "--store", "sqlite:staff.db")
    assert done.returncode == 1
    assert "the store has other schemas than this program" in done.stderr
    assert "tests.v1.Team.color (field 1): expected list of string as stored" in done.stderr
    async with SqliteBackend("staff.db") as store:
        assert store.position.revision == before


async def test_the_store_remembers_the_versions_that_it_is_migrated_to(terminal: Terminal) -> None:
    """So a later program cannot misread what the migration wrote."""
    await filled(failing=False)
    async with SqliteBackend("staff.db") as store:
        assert await read_schemas(store) == {}
    assert (await terminal("store", "migrate", APP, "--store", "sqlite:staff.db")).returncode == 0
    async with SqliteBackend("staff.db") as store:
        assert set(await read_schemas(store)) == {"tests.v1.Team", "tests.v2.Team", "tests.v3.Team", "tests.v9.Team"}


async def test_on_etcd_it_works_beside_a_server_that_has_the_store_open(terminal: Terminal) -> None:
    """Readers of that server hear of an update, in their version."""
    async with serving_etcd() as (_, endpoint), EtcdBackend(f"etcd://{endpoint}/staff") as store:
        await Calls(store, without_converters()).write(a_team(V1, roster("ada")))
        server = Calls(store, versions())
        async with server.watch(a_type(V1)) as items:
            await take(items, 2)
            done = await terminal("store", "migrate", APP, "--store", f"etcd://{endpoint}/staff")
            assert done.returncode == 0, done.stderr
            assert "1 of 1 resources rewritten" in done.stdout
            (item,) = await take(items, 1)
        assert isinstance(item, Changes)
        (change,) = item.changes
        assert not change.deleted
        assert said(change.resource, V1).names == ["ada"]
        stored, _ = await store.read(V1.kind, ("default", "default", "one"))
        assert stored is not None
        assert version_of(stored) == "v3"
