"""`headway types`, `apply`, `get`, `list` and `delete`, which don't have the classes of the server's types."""

import json
import re
from pathlib import Path

import click
import pytest
import trio

from headway.cli import main
from headway.rpc import Health, Services, open_server
from tests.cli.conftest import CORE, Started
from tests.cli.terminal import Terminal

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


async def test_types_lists_the_types_of_the_server(headway: Terminal) -> None:
    """Each has its scope and the name of its payload."""
    assert (await headway("types")).stdout.splitlines() == [
        "TYPE                          SCOPE      PAYLOAD",
        "bank.v1.Account               namespace  tests.Account",
        "event.v1.Event                namespace  headway.event.v1.Event",
        "internal.v1.ControllerRecord  cluster    headway.internal.v1.ControllerRecord",
        "internal.v1.Tombstone         undefined  headway.resource.v1.Tombstone",
        "pause.v1.Pause                cluster    headway.pause.v1.Pause",
        "peering.v1.Peering            cluster    headway.peering.v1.Peering",
        "staff.v1.Account              namespace  tests.Account",
        "staff.v1.Site                 cluster    tests.Account",
        "staff.v1.Team                 namespace  staff.v1.Team",
        "tenancy.v1.Namespace          partition  headway.tenancy.v1.Namespace",
        "tenancy.v1.Partition          cluster    headway.tenancy.v1.Partition",
        "tenancy.v1.Quota              cluster    headway.tenancy.v1.Quota",
    ]


async def test_list_and_watch_select_by_metadata(headway: Terminal) -> None:
    """An invalid text is wrong usage."""
    assert (await headway("apply", "-f", "-", stdin=BOTH)).returncode == 0
    for entries, found in (("made-by=hand", 1), ("made-by=machine", 0)):
        listed = await headway("list", "staff.account", "--metadata", entries, "-o", "json")
        assert len(json.loads(listed.stdout)) == found
    refused = await headway("list", "staff.account", "--metadata", "hand")
    assert refused.returncode == 2
    assert "Error: --metadata 'hand': 'hand' is not key=value" in refused.stderr
    several = await headway("watch", "team,staff.account", "--metadata", "made-by=hand")
    assert several.returncode == 2
    assert "give one type" in several.stderr


async def test_types_shows_the_fields_of_a_type(headway: Terminal) -> None:
    """Each field has its kind or the members of its enum. JSON has the server's description."""
    assert [line.split(maxsplit=2) for line in (await headway("types", "team")).stdout.splitlines()] == [
        ["MESSAGE", "FIELD", "KIND"],
        ["Team", "members", "list of Member"],
        ["Team", "note", "optional string"],
        ["Member", "login", "string"],
        ["Member", "rank", "JUNIOR | SENIOR"],
    ]
    described = json.loads((await headway("types", "team", "-o", "json")).stdout)
    assert [message["fullName"].rpartition(".")[2] for message in described["messages"]] == ["Team", "Member"]


async def test_apply_writes_only_resources_that_differ(headway: Terminal) -> None:
    """The output says created, unchanged or changed."""
    created = await headway("apply", "-f", "-", stdin=BOTH)
    lines = ["Namespace lab created", "Team core created", "Account lab/ada created", "Site north created"]
    assert created.stdout.splitlines() == lines, created.stderr
    again = await headway("apply", "-f", "-", stdin=BOTH.replace("made-by: hand", "made-by: foot"))
    lines = ["Namespace lab unchanged", "Team core unchanged", "Account lab/ada changed", "Site north unchanged"]
    assert again.stdout.splitlines() == lines


async def test_problems_of_manifests_have_their_place_and_a_suggestion(headway: Terminal, tmp_path: Path) -> None:
    """The problems of all files are printed as FILE:LINE:COLUMN, and nothing is stored."""
    (tmp_path / "a.yaml").write_text(f"{CORE}---\ntype: Site\nname: north\ndata:\n  lgin: x\n")
    (tmp_path / "b.yaml").write_text("type: Teem\nname: core\n")

    done = await headway("apply", "-f", "a.yaml", "-f", "b.yaml")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.splitlines() == [
        "a.yaml:12:3: data.lgin: Account has no field 'lgin'; did you mean 'login'?",
        "b.yaml:1:7: type: type 'Teem' is not registered; write it as group.version.Kind; did you mean 'Team'?",
    ]
    assert (await headway("get", "team", "core")).returncode == 3


async def test_get_prints_a_table_yaml_or_json(headway: Terminal) -> None:
    """YAML can be applied again. JSON has the fields that the store assigns."""
    await headway("apply", "-f", "-", stdin=BOTH)

    head, row = (await headway("get", "site", "north")).stdout.splitlines()
    assert head.split("  ")[0] == "NAME"
    assert re.fullmatch(r"NAME   LOG IN +VERSION  AGE +CONDITIONS", head)
    assert re.fullmatch(r"north +\d+ +\d+s", row)
    written = (await headway("get", "staff.v1.Team", "core", "-o", "yaml")).stdout
    assert written == CORE
    assert (await headway("apply", "-f", "-", stdin=written)).stdout == "Team core unchanged\n"
    shown = json.loads((await headway("get", "staff.account", "ada", "--namespace", "lab", "-o", "json")).stdout)
    assert (shown["name"], shown["namespace"], shown["data"]) == ("ada", "lab", {"login": "ada"})
    assert shown["metadata"] == {"made-by": "hand"}
    assert shown["uid"]
    assert shown["version"]


async def test_list_shows_all_resources_of_a_type(headway: Terminal) -> None:
    """All namespaces are listed by default. An empty list is reported on stderr."""
    await headway("apply", "-f", "-", stdin=BOTH)

    listed = (await headway("list", "staff.account")).stdout.splitlines()
    assert [line.split()[:3] for line in listed] == [["PARTITION", "NAMESPACE", "NAME"], ["default", "lab", "ada"]]
    assert json.loads((await headway("list", "team", "-o", "json")).stdout)[0]["data"]["members"][0]["rank"] == "SENIOR"
    nothing = await headway("list", "staff.account", "--prefix", "b")
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (0, "", "no staff.v1.Account found\n")


@pytest.mark.parametrize(("typed", "meant"), [("tem", "Team"), ("staff.v1.taem", "staff.v1.Team"), ("STIE", "Site")])
async def test_unknown_type_is_wrong_usage_with_a_suggestion(headway: Terminal, typed: str, meant: str) -> None:
    """A kind is compared with kinds, and a full name with full names."""
    done = await headway("list", typed)

    assert done.returncode == 2
    assert f"type {typed!r} not found; did you mean {meant!r}?" in done.stderr


async def test_resource_not_found_ends_with_3(headway: Terminal) -> None:
    """delete --if-exists succeeds."""
    for command in ("get", "delete"):
        done = await headway(command, "team", "core")
        assert (done.returncode, done.stdout, done.stderr) == (3, "", "Error: Team core not found\n")

    assert (await headway("delete", "team", "core", "--if-exists")).stdout == "Team core not found\n"


async def test_delete_deletes_or_names_the_finalizers(headway: Terminal) -> None:
    """A resource with a finalizer is only marked for deletion."""
    await headway("apply", "-f", "-", stdin=CORE)
    assert (await headway("delete", "team", "core")).stdout == "Team core deleted\n"
    assert (await headway("get", "team", "core")).returncode == 3

    await headway("apply", "-f", "-", stdin=CORE.replace("data:", "metadata: {finalizers: cleanup}\ndata:"))
    assert (await headway("delete", "team", "core")).stdout == "Team core marked for deletion; it is held by cleanup\n"
    assert "Deleting" in (await headway("get", "team", "core")).stdout


async def test_apply_stops_at_the_first_refused_resource(headway: Terminal) -> None:
    """The error has the resource, the reason and the number of resources that were not applied."""
    orphan = "type: staff.v1.Account\nname: a\nowner: {type: Team, name: none}\n"

    done = await headway("apply", "-f", "-", stdin=f"{orphan}---\n{CORE}")
    assert done.returncode in (1, 3)
    assert done.stdout == ""
    assert done.stderr.startswith("Error: Account a: ")
    assert done.stderr.endswith(" (1 more not applied)\n")


async def test_unreachable_server_ends_with_5(terminal: Terminal) -> None:
    """The error is one line with the address."""
    done = await terminal("list", "team")

    assert (done.returncode, done.stdout) == (5, "")
    errors = done.stderr
    assert errors.startswith("Error: no answer from 127.0.0.1:1: ")
    assert len(errors.splitlines()) == 1


async def test_control_characters_of_resources_are_escaped(headway: Terminal) -> None:
    """Control characters outside ASCII are escaped too, which JSON does not require."""
    await headway("apply", "-f", "-", stdin='type: Site\nname: a\ndata: {login: "\\e[31m\\x9b31m\\x7fred"}\n')

    for output in ("json", "yaml"):
        shown = (await headway("get", "site", "a", "-o", output)).stdout
        assert not {"\x1b", "\x9b", "\x7f"} & set(shown)


async def test_grpc_server_that_is_not_headway_ends_with_1(terminal: Terminal) -> None:
    """An address without a server ends with 5."""
    async with open_server(Services(Health("other")), ["127.0.0.1:0"]) as other:
        done = await terminal("types", server=other.addresses[0])

    assert done.returncode == 1
    assert done.stderr == f"Error: {other.addresses[0]} doesn't describe its types: it is not a Headway server\n"


def test_help_lists_each_command_with_its_own_first_sentence() -> None:
    """The list is written without importing the commands, so a test compares the two."""
    context = click.Context(main, max_content_width=200, terminal_width=200)
    formatter = context.make_formatter()
    main.format_commands(context, formatter)
    listed = dict(line.split(maxsplit=1) for line in formatter.getvalue().splitlines()[1:])
    assert sorted(listed) == main.list_commands(context)
    for name, sentence in listed.items():
        command = main.get_command(context, name)
        assert command is not None
        assert (command.name, command.get_short_help_str(200)) == (name, sentence)


@pytest.mark.wide
async def test_process_has_its_server_from_the_environment_and_returns_the_exit_code(start: Started) -> None:
    """Most other tests run commands in the test's process."""
    process = start("get", "team", "core", server="127.0.0.1:2")

    _, errors = await trio.to_thread.run_sync(process.communicate)
    assert process.returncode == 5
    assert errors.startswith("Error: no answer from 127.0.0.1:2: ")


async def test_json_output_can_be_applied_again(headway: Terminal) -> None:
    """Applying a resource or a list of resources as printed changes nothing."""
    await headway("apply", "-f", "-", stdin=f"{BOTH}---\n{CORE.replace('core', 'other')}")
    assert (await headway("wait", "team", "core", "--for", "Staffed")).returncode == 0
    for shown in (["get", "team", "core"], ["list", "team"], ["list", "staff.account"]):
        given = (await headway(*shown, "-o", "json")).stdout
        done = await headway("apply", "-f", "-", stdin=given)
        assert done.stderr == ""
        assert {line.rpartition(" ")[2] for line in done.stdout.splitlines()} == {"unchanged"}


async def test_manifests_in_hcl_are_applied_from_files_and_from_stdin(headway: Terminal, tmp_path: Path) -> None:
    """The suffix decides the format of a file, and the beginning of the text decides for stdin."""
    text = 'ID {\n  Type = gvk("staff.v1.Team")\n  Name = "core"\n}\nData {\n  Members { Login = "ada" }\n}\n'
    (tmp_path / "core.hcl").write_text(text)
    assert (await headway("apply", "-f", "core.hcl")).stdout == "Team core created\n"
    assert (await headway("apply", "-f", "-", stdin=text)).stdout == "Team core unchanged\n"
    done = await headway("apply", "-f", "-", stdin=text.replace("Login", "Logn"))
    assert done.returncode == 4
    assert done.stderr == "<stdin>:6:13: Data.Members[0].Logn: Member has no field 'Logn'; did you mean 'Login'?\n"
