"""`headway watch`, `status`, `wait` and `diff`, which look at what changes."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import CORE, Command, Started, interrupt

EMPTY = "type: Team\nname: core\n"


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_watch_shows_what_is_there_and_every_change_until_it_is_interrupted(
    start: Started, server: str, headway: Command
) -> None:
    """Found, stored, deleted; Ctrl-C ends it with 130 and without a traceback."""
    site = "type: Site\nname: north\n"
    headway("apply", "-f", "-", stdin=site)
    watching = start("watch", "site", server=server)

    assert re.fullmatch(r"found    north +\d+\n", next_line(watching))
    headway("apply", "-f", "-", stdin=f"{site}data: {{login: x}}\n")
    assert re.fullmatch(r"stored   north +\d+\n", next_line(watching))
    headway("delete", "site", "north")
    assert re.fullmatch(r"deleted  north +\d+\n", next_line(watching))
    assert interrupt(watching) == (130, "", "")


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_watch_speaks_to_programs_too(start: Started, server: str, headway: Command, output: str) -> None:
    """A JSON object a line, or a document a change."""
    headway("apply", "-f", "-", stdin="type: Site\nname: north\n")
    watching = start("watch", "site", "-o", output, server=server)

    line = next_line(watching)
    if output == "json":
        said = json.loads(line)
        assert (said["event"], said["resource"]["name"]) == ("found", "north")
    else:
        assert line == "--- # found\n"
        assert next_line(watching) == "type: staff.v1.Site\n"


def test_a_watch_ends_with_5_when_its_server_goes(start: Started, headway: Command) -> None:
    """Nothing is shown as if it were still up to date."""
    serving = start("serve", "tests.cli.served:app", "--listen", "127.0.0.1:0")
    assert serving.stdout is not None
    address = serving.stdout.readline().removeprefix("listening on ").strip()
    start("apply", "-f", "-", server=address).communicate("type: Site\nname: north\n", timeout=30)
    watching = start("watch", "site", server=address)
    assert next_line(watching).startswith("found ")

    interrupt(serving)
    _, errors = watching.communicate(timeout=30)
    assert watching.returncode == 5
    assert errors.startswith("Error: ")
    assert "Traceback" not in errors
    assert headway("types").returncode == 0


def test_status_shows_the_conditions_by_who_wrote_them(headway: Command) -> None:
    """One that has none says so."""
    headway("apply", "-f", "-", stdin=f'{EMPTY}data: {{note: "\\e[31mred"}}\n')
    assert headway("wait", "team", "core", "--for", "Staffed=false").returncode == 0

    head, row = headway("status", "team", "core").stdout.splitlines()
    assert head.split() == ["BY", "CONDITION", "STATE", "SEEN", "REASON", "MESSAGE"]
    assert row.split() == ["teams", "Staffed", "FALSE", "current", "\\x1b[31mred"]
    headway("apply", "-f", "-", stdin="type: Site\nname: a\n")
    assert headway("status", "site", "a").stderr == "Site a has no conditions\n"
    assert headway("status", "site", "b").returncode == 3


def test_wait_ends_once_the_condition_holds(start: Started, server: str, headway: Command) -> None:
    """It may begin before the resource is there, and passes by a state that is not meant."""
    waiting = start("wait", "team", "core", "--for", "teams/Staffed", server=server)
    headway("apply", "-f", "-", stdin=EMPTY)
    assert headway("wait", "team", "core", "--for", "Staffed=false").returncode == 0
    assert waiting.poll() is None

    headway("apply", "-f", "-", stdin=CORE)
    out, errors = waiting.communicate(timeout=30)
    assert (waiting.returncode, out, errors) == (0, "Team core: teams/Staffed\n", "")


def test_wait_is_not_taken_in_by_another_resource_whose_name_begins_alike(headway: Command) -> None:
    """`core` is not `core-2`, and what a stranger has said under another key is not meant either."""
    headway("apply", "-f", "-", stdin=CORE.replace("name: core", "name: core-2"))
    assert headway("wait", "team", "core-2", "--for", "Staffed").returncode == 0

    assert headway("wait", "team", "core", "--for", "Staffed", "--within", "0.2").returncode == 6
    assert headway("wait", "team", "core-2", "--for", "others/Staffed", "--within", "0.2").returncode == 6


def test_wait_gives_up_when_it_is_told_to(headway: Command) -> None:
    """An exit code of its own, and what did not come."""
    done = headway("wait", "team", "core", "--for", "Ready", "--within", "0.2")

    assert (done.returncode, done.stdout) == (6, "")
    assert done.stderr == "Error: Team core: Ready does not hold after 0.2 s\n"


def test_wait_for_deleted_ends_with_the_resource(start: Started, server: str, headway: Command) -> None:
    """While it is there it waits; what is not there is deleted already."""
    headway("apply", "-f", "-", stdin=CORE)
    assert headway("wait", "team", "core", "--for", "deleted", "--within", "0.2").returncode == 6
    waiting = start("wait", "team", "core", "--for", "deleted", server=server)

    headway("delete", "team", "core")
    assert waiting.communicate(timeout=30)[0] == "Team core: deleted\n"
    assert headway("wait", "team", "core", "--for", "deleted").returncode == 0


@pytest.mark.parametrize("wanted", ["Ready=perhaps", "=true", "teams/"])
def test_wait_says_what_can_be_waited_for(headway: Command, wanted: str) -> None:
    """Wrong usage."""
    done = headway("wait", "team", "core", "--for", wanted)

    assert done.returncode == 2
    assert "such as Ready, Ready=false or teams/Ready, or 'deleted'" in done.stderr


def test_diff_shows_what_apply_would_change(headway: Command, tmp_path: Path) -> None:
    """7 and a unified diff where something differs, 0 and nothing where nothing does; it stores nothing."""
    (tmp_path / "core.yaml").write_text(CORE)
    new = headway("diff", "-f", "core.yaml")
    assert (new.returncode, new.stdout.splitlines()[0]) == (7, "--- stored: nothing")
    assert headway("get", "team", "core").returncode == 3
    headway("apply", "-f", "core.yaml")

    same = headway("diff", "-f", "core.yaml")
    assert (same.returncode, same.stdout, same.stderr) == (0, "", "")
    other = headway("diff", "-f", "-", stdin=CORE.replace("login: grace", "login: katherine"))
    assert other.returncode == 7
    assert [line for line in other.stdout.splitlines() if line[0] in "+-"] == [
        "--- stored: Team core",
        "+++ given: Team core",
        "-  - login: grace",
        "+  - login: katherine",
    ]


def test_diff_leaves_out_what_apply_leaves_alone(headway: Command) -> None:
    """Finalizers that were given once are no difference to a manifest without any."""
    headway("apply", "-f", "-", stdin=CORE.replace("data:", "metadata: {finalizers: cleanup}\ndata:"))

    assert headway("diff", "-f", "-", stdin=CORE).returncode == 0
