"""`headway describe`: one resource in one answer."""

from __future__ import annotations

import re

from tests.cli.terminal import Terminal

CORE = "type: staff.v1.Team\nname: core\ndata:\n  members:\n  - login: ada\n"


async def test_description_has_all_that_the_server_knows(headway: Terminal) -> None:
    """The content, the conditions, what it owns, its events, and what its controllers do about it."""
    await headway("apply", "-f", "-", stdin=CORE)
    await headway("wait", "team", "core", "--for", "Staffed", "--within", "20")
    done = await headway("describe", "team", "core")
    assert (done.returncode, done.stderr) == (0, "")
    head, *sections = re.split(r"\n\n(?=\w+:\n)", done.stdout)
    assert re.fullmatch(
        r"staff\.v1\.Team default/default/core\nCreated: [-0-9]+ [:0-9]+Z, \d+s ago\n"
        r"Stored:  version \d+, generation \w+, uid \w+",
        head,
    )
    parts = {each.partition(":\n")[0]: each.partition(":\n")[2] for each in sections}
    assert list(parts) == ["Manifest", "Conditions", "Owns", "Events", "Why"]
    assert parts["Manifest"] == "".join(f"  {line}\n" for line in CORE.splitlines()).rstrip("\n")
    assert "Staffed" in parts["Conditions"]
    assert parts["Owns"] == "  nothing"
    assert parts["Events"] == "  none"
    assert "Controller staff/teams manages it" in parts["Why"]


async def test_missing_resource_is_not_found(headway: Terminal) -> None:
    done = await headway("describe", "team", "nobody", "-n", "labs")
    assert done.returncode == 3
    assert "Note: namespace 'labs' not found" in done.stderr
