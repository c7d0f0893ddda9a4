"""`headway schema`, which shows and compares the schemas of stores, servers and programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import headway
from headway.storage import EtcdBackend, backup_store
from tests.cli.terminal import Terminal

HEAD = ["TYPE", "SCOPE", "MESSAGE", "NUMBER", "FIELD", "KIND", "BEFORE"]
FIRST = """
@headway.message
class Person:
    login: str = field(1)

@headway.message
class Team:
    title: str = field(1)
    color: str = field(2)
    lead: Person = field(3)
"""
SECOND = """
@headway.message
class Person:
    login: str = field(1)
    email: str = field(2)

@headway.message(reserved={2: "color"}, renamed={1: "title"})
class Team:
    name: str = field(1)
    lead: Person = field(3)
"""
WRONG = """
@headway.message
class Team:
    title: int = field(1)
    color: str = field(2)
"""
PROBLEMS = [
    "staff.v1.Team.title (field 1): expected string as stored, got int64; "
    "keep string, or use a new number, such as field(4)",
    "staff.v1.Team.lead (field 3): expected 'lead' as stored, got no such field; "
    "declare @headway.message(reserved={3: 'lead'}) for Team",
]

Program = Callable[[str, str], tuple[str, headway.App]]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """Return the reference to a module with an app, and the app."""
    path = [*sys.path]

    def made(name: str, messages: str) -> tuple[str, headway.App]:
        from importlib import import_module, invalidate_caches

        text = f'import headway\nfrom headway import field\n{messages}\napp = headway.App("staff")\n'
        (tmp_path / f"{name}.py").write_text(f'{text}TEAM = app.type("staff", "v1", "Team", Team)\n')
        invalidate_caches()
        if str(tmp_path) not in sys.path:
            sys.path.insert(0, str(tmp_path))
        app: headway.App = import_module(name).app
        return f"{name}:app", app

    yield made
    sys.path[:] = path
    for each in tmp_path.glob("*.py"):
        sys.modules.pop(each.stem, None)


async def fill(store: str | EtcdBackend, app: headway.App) -> None:
    async with headway.open_engine(store, app) as engine:
        (team,) = (type for type in app.registry if type.name.group == "staff")
        await engine.client.write(team.new("core"))


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


async def test_diff_shows_before_a_deployment_whether_a_store_rejects_the_program(
    terminal: Terminal, program: Program
) -> None:
    """A store that a server has open and a backup are read too. Nothing is changed."""
    first, app = program("first_app", FIRST)
    second, _ = program("second_app", SECOND)
    wrong, _ = program("wrong_app", WRONG)
    await fill("sqlite:staff.db", app)
    await backup_store("sqlite:staff.db", "backup")
    async with headway.open_engine("sqlite:staff.db", app):
        for url in ("sqlite:staff.db", "sqlite:backup"):
            refused = await terminal("schema", "diff", wrong, "--store", url)
            assert (refused.returncode, refused.stdout.splitlines()) == (7, PROBLEMS)
            taken = await terminal("schema", "diff", second, "--store", url)
            assert (taken.returncode, taken.stdout) == (0, "staff.v1.Team would be recorded\n")
            same = await terminal("schema", "diff", first, "--store", url)
            assert (same.returncode, same.stdout) == (0, "no differences\n")
            shown = await terminal("schema", "show", "--store", url)
            assert words(shown.stdout) == [
                HEAD,
                ["staff.v1.Team", "namespace", "Team", "1", "title", "string"],
                ["staff.v1.Team", "namespace", "Team", "2", "color", "string"],
                ["staff.v1.Team", "namespace", "Team", "3", "lead", "Person"],
                ["staff.v1.Team", "namespace", "Person", "1", "login", "string"],
            ]
    done = await terminal("schema", "diff", wrong, "--store", "sqlite:staff.db", "-o", "json")
    assert done.returncode == 7
    said = json.loads(done.stdout)
    assert said["recorded"] == []
    assert said["problems"][0] == {
        "type": "staff.v1.Team",
        "field": "title",
        "number": 1,
        "problem": "expected string as stored, got int64",
        "right": "keep string, or use a new number, such as field(4)",
    }


async def test_show_has_removed_and_renamed_fields(terminal: Terminal, program: Program) -> None:
    """Both the record in a store and the declaration of a program have them."""
    _, app = program("first_app", FIRST)
    second, later = program("second_app", SECOND)
    for each in (app, later):
        await fill("sqlite:staff.db", each)
    stored = await terminal("schema", "show", "--store", "sqlite:staff.db")
    declared = await terminal("schema", "show", "--app", second)
    rows = [
        ["staff.v1.Team", "namespace", "Team", "1", "name", "string", "title"],
        ["staff.v1.Team", "namespace", "Team", "2", "color", "removed"],
        ["staff.v1.Team", "namespace", "Team", "3", "lead", "Person"],
        ["staff.v1.Team", "namespace", "Person", "1", "login", "string"],
        ["staff.v1.Team", "namespace", "Person", "2", "email", "string"],
    ]
    assert words(stored.stdout) == [HEAD, *rows]
    assert sorted(words(declared.stdout)) == sorted([HEAD, *rows])
    shown = json.loads((await terminal("schema", "show", "--store", "sqlite:staff.db", "-o", "json")).stdout)
    assert shown["staff.v1.Team"]["messages"][0]["reserved"] == {"2": "color"}


async def test_diff_with_a_server_compares_only_common_types_and_fields(terminal: Terminal, program: Program) -> None:
    """A client of the server would compare the same. A note says that this is no answer for the store."""
    first, app = program("first_app", FIRST)
    wrong, _ = program("wrong_app", WRONG)
    async with headway.open_engine("memory:", app, network=headway.Network(["127.0.0.1:0"], insecure=True)) as engine:
        server = engine.addresses[0]
        refused = await terminal("schema", "diff", wrong, server=server)
        assert (refused.returncode, refused.stdout.splitlines()) == (
            7,
            [PROBLEMS[0].replace("as stored", "as the server has it")],
        )
        for options in ((), ("-o", "json")):
            same = await terminal("schema", "diff", first, *options, server=server)
            assert same.returncode == 0
            assert same.stderr.startswith(f"compared as a client of {server}; to check whether its store would accept")
        assert json.loads(same.stdout) == {"problems": [], "recorded": [], "unknown": []}
        shown = await terminal("schema", "show", server=server)
        assert ["staff.v1.Team", "namespace", "Person", "1", "login", "string"] in words(shown.stdout)


async def test_wrong_usage_creates_no_store(terminal: Terminal, program: Program) -> None:
    """The exit code is 2, and the error says what is right."""
    first, _ = program("first_app", FIRST)
    for arguments, said in (
        (("show", "--store", "sqlite:none.db"), "no store found at sqlite:none.db"),
        (("diff", first, "--store", "none.db"), "is not a store URL"),
        (("diff", "first_app", "--store", "sqlite:none.db"), "write module:attribute"),
        (("show", "--app", first, "--store", "sqlite:none.db"), "give one of them"),
    ):
        done = await terminal("schema", *arguments)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert "none.db" not in os.listdir()
