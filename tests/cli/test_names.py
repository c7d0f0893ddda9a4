"""What a user may write for a type, and what a command says of a partition or namespace that does not exist."""

from __future__ import annotations

import pytest

from tests.cli.terminal import Terminal

UNITS = "type: tenancy.v1.Namespace\nname: lab\n---\ntype: staff.v1.Team\nname: core\nnamespace: lab\n"


@pytest.mark.parametrize("type", ["teams", "Teams", "staff.teams", "staff.v1.Teams", "sites", "namespaces", "quotas"])
async def test_plural_of_a_kind_names_its_type(headway: Terminal, type: str) -> None:
    assert (await headway("list", type)).returncode == 0


async def test_plural_is_as_ambiguous_as_its_kind(headway: Terminal) -> None:
    done = await headway("list", "accounts")
    assert (done.returncode, "could be bank.v1.Account, staff.v1.Account" in done.stderr) == (2, True)
    assert "type 'teamses' not found; did you mean 'Team'?" in (await headway("list", "teamses")).stderr


@pytest.mark.parametrize("command", ["get", "status", "delete", "list", "events"])
async def test_unknown_namespace_is_named(headway: Terminal, command: str) -> None:
    """The answer alone would not say whether the resource or its namespace is missing."""
    await headway("apply", "-f", "-", stdin=UNITS)
    name = [] if command == "list" else ["core"]
    done = await headway(command, "team", *name, "-n", "labs")
    where = "" if command == "list" else " in partition 'default'"
    assert f"Note: namespace 'labs' not found{where}; did you mean 'lab'?\n" in done.stderr
    assert done.returncode == (0 if command == "list" else 3)
    missing = await headway(command, "team", *([] if command == "list" else ["nobody"]), "-n", "default")
    assert "Note" not in missing.stderr
    elsewhere = await headway(command, "team", *name, "--partition", "east")
    assert "Note: partition 'east' not found; " in elsewhere.stderr


@pytest.mark.parametrize(
    ("command", "code"),
    [("why team core", 0), ("wait team core --for Staffed --within 0.2", 6), ("events", 0)],
)
async def test_unknown_namespace_is_named_though_it_is_no_error(headway: Terminal, command: str, code: int) -> None:
    """The resource, or the namespace, may appear later."""
    await headway("apply", "-f", "-", stdin=UNITS)
    done = await headway(*command.split(), "-n", "labs")
    assert ("Note: namespace 'labs' not found" in done.stderr, done.returncode) == (True, code)
    known = await headway(*command.split(), "-n", "default")
    assert ("Note" in known.stderr, known.returncode) == (False, code)


@pytest.mark.parametrize(
    "command", ["wait team core --for Staffed", "watch team", "events --watch", "events team core --watch"]
)
async def test_unknown_namespace_is_named_before_a_wait_for_what_is_in_it(headway: Terminal, command: str) -> None:
    await headway("apply", "-f", "-", stdin=UNITS)
    following = headway.start(*command.split(), "-n", "labs")
    assert (await following.errors.line()).startswith("Note: namespace 'labs' not found")
    assert following.returncode is None
    following.scope.cancel()
