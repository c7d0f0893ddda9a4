"""`headway store migrate`."""

from __future__ import annotations

import json
import os

import pytest

from headway.access import Access, Authorizer, Policy, Rule, new_token
from headway.client import SnapshotEnd, Upserted
from headway.engine import Network, open_engine
from headway.resource import FINALIZERS
from headway.storage import (
    SqliteBackend,
    Within,
    mark_unfinished,
    version_of,
)
from headway.versions import _migrate, record_schemas
from tests.cli import versioned
from tests.cli.terminal import Terminal
from tests.helpers.calls import Calls
from tests.helpers.declared import a_status, an_id, uid_of
from tests.helpers.versions import ALONE, V1, V2, a_team, crew, roster, versions, without_converters

APP = "tests.cli.versioned:app"


async def filled(*, failing: bool, apart: bool = True) -> None:
    """Store teams in v1 and v3, and one in a version without a converter if it is to be ``apart``."""
    async with SqliteBackend("staff.db") as store:
        old = Calls(store, without_converters())
        await old.write(a_team(V1, roster("ada"), "a"))
        await old.write(a_team(V1, roster(color="raise" if failing else ""), "b"))
        if apart:
            await old.write(a_team(ALONE, roster(), "c"))
        await Calls(store, versions()).write(a_team(V2, crew(("ada", "lead")), "d"))


async def test_store_is_migrated_with_progress_and_a_summary(terminal: Terminal) -> None:
    """Progress goes to stderr. A second run has nothing to do, and prints the summary as JSON."""
    await filled(failing=False, apart=False)
    done = await terminal("store", "migrate", APP, "--store", "sqlite:staff.db")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(": 2 of 3 resources rewritten, 1 was in its storage version\n")
    assert done.stderr == "tests.Team: 3 examined, 2 rewritten\n"
    done = await terminal("store", "migrate", APP, "--store", "sqlite:staff.db", "-o", "json")
    shown = json.loads(done.stdout)
    assert (done.returncode, shown["looked_at"], shown["rewritten"], shown["left"]) == (0, 3, 0, [])
    assert (shown["apart"], done.stderr) == ({}, "")


async def test_versions_that_no_converter_reaches_are_counted_and_end_with_7(terminal: Terminal) -> None:
    """After step 3 of an upgrade, a program without the old version would not see these resources."""
    await filled(failing=False)
    done = await terminal("store", "migrate", APP, "--store", "sqlite:staff.db")
    assert done.returncode == 7
    first, second = done.stdout.splitlines()
    assert first == "1 resource is stored as tests.v9.Team, which no converter reaches"
    assert second.endswith(": 2 of 4 resources rewritten, 1 was in its storage version")
    done = await terminal("store", "migrate", APP, "--store", "sqlite:staff.db", "-o", "json")
    assert (done.returncode, json.loads(done.stdout)["apart"]) == (7, {"tests.v9.Team": 1})


async def test_resources_that_could_not_be_rewritten_are_named_and_end_with_7(terminal: Terminal) -> None:
    await filled(failing=True)
    done = await terminal("store", "migrate", APP, "--store", "sqlite:staff.db")
    assert done.returncode == 7
    assert done.stdout.startswith(
        "tests.v1.Team default/default/b was not rewritten: up= of tests.v1.Team \u2192 tests.v2.Team raised KeyError"
    )


async def test_store_that_cannot_be_migrated_is_refused(terminal: Terminal) -> None:
    """The store is missing, is an unfinished copy, or is open in another process. No store is created."""
    for app, url, problem in (
        (APP, "sqlite:none.db", "no store found at sqlite:none.db"),
        (APP, "memory:", "is a new, empty store"),
        (APP, "none.db", "is not a store URL"),
        ("tests.cli.versioned:unconverted", "sqlite:none.db", "no store found at sqlite:none.db"),
        ("tests.cli.versioned:nothing", "sqlite:none.db", "has no 'nothing'"),
        ("", "sqlite:none.db", "--store requires an APP"),
        (APP, "", "leave the APP out"),
    ):
        done = await terminal("store", "migrate", *filter(None, [app]), *(["--store", url] if url else []))
        assert done.returncode == 2
        assert problem in done.stderr
    assert os.listdir() == []
    async with SqliteBackend("staff.db") as store:
        await mark_unfinished(store, "another")
        done = await terminal("store", "migrate", APP, "--store", "sqlite:staff.db")
        assert done.returncode == 5
    done = await terminal("store", "migrate", APP, "--store", "sqlite:staff.db")
    assert "was not finished" in done.stderr


async def test_program_that_would_misread_the_store_is_refused(terminal: Terminal) -> None:
    """The error lists all differences, and nothing is rewritten."""
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


# --- by the server that has the store open ---


async def test_server_migrates_its_sqlite_store_while_it_serves(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It rewrites one page at a time. Writes and watches continue, and only payloads and versions change."""
    monkeypatch.setattr(_migrate, "PAGE", 2)
    await filled(failing=False)
    async with SqliteBackend("staff.db") as store:
        old = Calls(store, without_converters())
        await old.write(a_team(V1, roster("eve"), "e", metadata={FINALIZERS: "hold"}))
        uid = uid_of((await old.read(an_id("e", V1))).resource)
        await old.write_status(an_id("e", V1, uid=uid), a_status())
        await old.delete(an_id("e", V1))
        before = (await old.read(an_id("e", V1))).resource
    async with open_engine("sqlite:staff.db", versioned.app, network=Network(["127.0.0.1:0"], insecure=True)) as engine:
        async with engine.client.watch(V1) as events:
            while not isinstance(await anext(events), SnapshotEnd):
                pass
            done = await terminal("store", "migrate", server=engine.addresses[0])
            assert done.returncode == 7
            assert done.stderr.splitlines() == [
                "tests.Team: 2 examined, 2 rewritten",
                "tests.Team: 4 examined, 2 rewritten",
                "tests.Team: 5 examined, 3 rewritten",
            ]
            assert "1 resource is stored as tests.v9.Team, which no converter reaches" in done.stdout
            assert ": 3 of 5 resources rewritten, 1 was in its storage version" in done.stdout
            heard = [each for each in [await anext(events) for _ in range(3)] if isinstance(each, Upserted)]
            assert [each.resource.id.name for each in heard] == ["a", "b", "e"]
        await engine.client.write(V1.new("late", roster("fay")))
        again = json.loads((await terminal("store", "migrate", "-o", "json", server=engine.addresses[0])).stdout)
        assert (again["looked_at"], again["rewritten"], again["forbidden"]) == (6, 0, 0)
    async with SqliteBackend("staff.db") as store:
        after, _ = await store.read(V1.kind, ("default", "default", "e"))
        assert before is not None
        assert after is not None
        assert version_of(after) == "v3"
        assert uid_of(after) == uid_of(before)
        assert (after.generation, after.status, after.metadata) == (before.generation, before.status, before.metadata)


async def test_server_migrates_only_resources_that_the_caller_may_read_and_write(terminal: Terminal) -> None:
    """Other resources are counted but not named. Without permission to list the kind, nothing is rewritten."""
    await filled(failing=False)
    everywhere = {"type": "tests.*.Team", "partition": "*", "namespace": "*"}
    rules = {
        "some": [
            Rule(verbs=["list"], **everywhere),
            Rule(verbs=["view", "write"], name_prefix="a", **everywhere),
        ],
        "no-list": [Rule(verbs=["read", "write"], **everywhere)],
    }
    made = {name: new_token([name]) for name in rules}
    access = Authorizer(
        Access([Policy(name, each) for name, each in rules.items()], [token for _, token in made.values()])
    )
    heard: list[object] = []
    async with open_engine(
        "sqlite:staff.db", versioned.app, network=Network(["127.0.0.1:0"], access=access), report=heard.append
    ) as engine:
        (where,) = engine.addresses
        none = await terminal("--token", made["no-list"][0], "store", "migrate", server=where)
        assert none.returncode == 1
        assert "permission denied: you may not list tests.v3.Team there" in none.stderr
        some = await terminal("--token", made["some"][0], "store", "migrate", server=where)
    assert some.returncode == 7
    assert "1 resource was not rewritten: permission denied: read and write" in some.stdout
    assert ": 1 of 4 resources rewritten, 1 was in its storage version" in some.stdout
    async with SqliteBackend("staff.db") as store:
        stored, _ = await store.list(V1.kind, Within())
    assert [version_of(each) for each in stored] == ["v3", "v1", "v9", "v3"]
