"""`headway types`, `apply`, `get`, `list` and `delete`, against a server whose classes they don't have."""

import json
import re
from pathlib import Path

import pytest
import trio

from headway.rpc import Health, Services, open_server
from tests.cli.conftest import CORE, Command, Started

LAB = """type: Namespace
name: lab
"""
BOTH = f"""{LAB}---
{CORE}---
type: staff.v1.Account
name: ada
namespace: lab
metadata: {{made-by: hand}}
data: {{login: ada}}
---
type: Site
name: north
"""


def test_types_lists_the_types_of_the_server(headway: Command) -> None:
    """With their scopes and the names of their payloads."""
    assert headway("types").stdout.splitlines() == [
        "TYPE                   SCOPE      PAYLOAD",
        "bank.v1.Account        namespace  tests.cli.served.Account",
        "internal.v1.Tombstone  undefined  headway.resource.v1.Tombstone",
        "staff.v1.Account       namespace  tests.cli.served.Account",
        "staff.v1.Site          cluster    tests.cli.served.Account",
        "staff.v1.Team          namespace  tests.cli.served.Team",
        "tenancy.v1.Namespace   partition  headway.tenancy.v1.Namespace",
        "tenancy.v1.Partition   cluster    headway.tenancy.v1.Partition",
    ]


def test_types_says_what_a_manifest_of_a_type_can_have(headway: Command) -> None:
    """Its messages' fields, their kinds and the members of their enums; in JSON, the description itself."""
    assert [line.split(maxsplit=2) for line in headway("types", "team").stdout.splitlines()] == [
        ["MESSAGE", "FIELD", "KIND"],
        ["Team", "members", "list of Member"],
        ["Team", "note", "optional string"],
        ["Member", "login", "string"],
        ["Member", "rank", "JUNIOR | SENIOR"],
    ]
    described = json.loads(headway("types", "team", "-o", "json").stdout)
    assert [message["fullName"].rpartition(".")[2] for message in described["messages"]] == ["Team", "Member"]


def test_apply_stores_every_document_and_writes_only_what_differs(headway: Command) -> None:
    """Created, then unchanged, then changed."""
    created = headway("apply", "-f", "-", stdin=BOTH)
    lines = ["Namespace lab created", "Team core created", "Account lab/ada created", "Site north created"]
    assert created.stdout.splitlines() == lines, created.stderr
    again = headway("apply", "-f", "-", stdin=BOTH.replace("made-by: hand", "made-by: foot"))
    lines = ["Namespace lab unchanged", "Team core unchanged", "Account lab/ada changed", "Site north unchanged"]
    assert again.stdout.splitlines() == lines


def test_a_typo_is_an_error_with_its_place_and_a_suggestion(headway: Command, tmp_path: Path) -> None:
    """FILE:LINE:COLUMN of every problem of every file, and nothing at all is stored."""
    (tmp_path / "a.yaml").write_text(f"{CORE}---\ntype: Site\nname: north\ndata:\n  lgin: x\n")
    (tmp_path / "b.yaml").write_text("type: Teem\nname: core\n")

    done = headway("apply", "-f", "a.yaml", "-f", "b.yaml")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.splitlines() == [
        "a.yaml:12:3: data.lgin: Account has no field 'lgin'; did you mean 'login'?",
        "b.yaml:1:7: type: no type 'Teem' is registered; write one as group.version.Kind; did you mean 'Team'?",
    ]
    assert headway("get", "team", "core").returncode == 3


def test_a_file_that_is_not_there_is_said(headway: Command) -> None:
    """It is what is wrong with the manifest."""
    done = headway("apply", "-f", "none.yaml")

    assert done.returncode == 4
    assert done.stderr == "none.yaml: it can't be read: No such file or directory\n"


def test_get_shows_a_resource_in_three_ways(headway: Command) -> None:
    """A table, a manifest that can be applied, and JSON with what the store has assigned."""
    headway("apply", "-f", "-", stdin=BOTH)

    head, row = headway("get", "site", "north").stdout.splitlines()
    assert head == "NAME   VERSION  CONDITIONS"
    assert re.fullmatch(r"north  \d+", row)
    written = headway("get", "staff.v1.Team", "core", "-o", "yaml").stdout
    assert written == CORE
    assert headway("apply", "-f", "-", stdin=written).stdout == "Team core unchanged\n"
    shown = json.loads(headway("get", "staff.account", "ada", "--namespace", "lab", "-o", "json").stdout)
    assert (shown["name"], shown["namespace"], shown["data"]) == ("ada", "lab", {"login": "ada"})
    assert shown["metadata"] == {"made-by": "hand"}
    assert shown["uid"]
    assert shown["version"]


def test_list_shows_all_of_a_type(headway: Command) -> None:
    """Everywhere unless told where, with the conditions; an empty table is said on stderr alone."""
    headway("apply", "-f", "-", stdin=BOTH)

    listed = headway("list", "staff.account").stdout.splitlines()
    assert [line.split()[:3] for line in listed] == [["PARTITION", "NAMESPACE", "NAME"], ["default", "lab", "ada"]]
    assert json.loads(headway("list", "team", "-o", "json").stdout)[0]["data"]["members"][0]["rank"] == "SENIOR"
    nothing = headway("list", "staff.account", "--prefix", "b")
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (0, "", "no staff.v1.Account found\n")


def test_an_ambiguous_type_is_said_with_what_it_could_be(headway: Command) -> None:
    """Wrong usage, and every candidate by its full name."""
    done = headway("list", "account")

    assert done.returncode == 2
    assert "the type 'account' is ambiguous; it could be bank.v1.Account, staff.v1.Account" in done.stderr


@pytest.mark.parametrize(("typed", "meant"), [("tem", "team"), ("staff.v1.Taem", "staff.v1.team")])
def test_an_unknown_type_is_said_with_the_closest(headway: Command, typed: str, meant: str) -> None:
    """Wrong usage, and a suggestion."""
    done = headway("list", typed)

    assert done.returncode == 2
    assert f"there is no type {typed!r}; did you mean {meant!r}?" in done.stderr


def test_what_is_not_there_has_an_exit_code_of_its_own(headway: Command) -> None:
    """For get, and for delete unless told that it doesn't matter."""
    for command in ("get", "delete"):
        done = headway(command, "team", "core")
        assert (done.returncode, done.stdout, done.stderr) == (3, "", "Error: Team core is not there\n")

    assert headway("delete", "team", "core", "--if-exists").stdout == "Team core is not there\n"


def test_delete_deletes_or_says_what_holds_it(headway: Command) -> None:
    """A finalizer keeps it, marked."""
    headway("apply", "-f", "-", stdin=CORE)
    assert headway("delete", "team", "core").stdout == "Team core deleted\n"
    assert headway("get", "team", "core").returncode == 3

    headway("apply", "-f", "-", stdin=CORE.replace("data:", "metadata: {finalizers: cleanup}\ndata:"))
    assert headway("delete", "team", "core").stdout == "Team core marked for deletion; it is held by cleanup\n"
    assert "Deleting" in headway("get", "team", "core").stdout


def test_what_the_server_refuses_ends_apply_and_is_named(headway: Command) -> None:
    """The resource, why, and how many were left."""
    orphan = "type: staff.v1.Account\nname: a\nowner: {type: Team, name: none}\n"

    done = headway("apply", "-f", "-", stdin=f"{orphan}---\n{CORE}")
    assert done.returncode in (1, 3)
    assert done.stdout == ""
    assert done.stderr.startswith("Error: Account a: ")
    assert done.stderr.endswith(" (1 more not applied)\n")


def test_an_unreachable_server_is_said_with_its_address(start: Started) -> None:
    """Exit code 5, one line, no traceback."""
    process = start("list", "team", server="127.0.0.1:1")

    out, errors = process.communicate(timeout=30)
    assert (process.returncode, out) == (5, "")
    assert errors.startswith("Error: no answer from 127.0.0.1:1: ")
    assert len(errors.splitlines()) == 1


def test_what_is_stored_can_not_write_to_the_terminal(headway: Command) -> None:
    """Escapes in a condition's message come out as text."""
    headway("apply", "-f", "-", stdin='type: Site\nname: a\ndata: {login: "\\e[31mred"}\n')

    assert "\x1b" not in headway("get", "site", "a", "-o", "json").stdout
    assert "\x1b" not in headway("get", "site", "a", "-o", "yaml").stdout


async def test_a_server_that_does_not_say_its_types_is_no_headway_server(start: Started) -> None:
    """Another gRPC server at the address is told from none, by the exit code too."""
    async with open_server(Services(Health("other")), ["127.0.0.1:0"]) as other:
        process = start("types", server=other.addresses[0])
        _, errors = await trio.to_thread.run_sync(process.communicate)

    assert process.returncode == 1
    assert errors == f"Error: {other.addresses[0]} doesn't say what its types are: it is no Headway server\n"
