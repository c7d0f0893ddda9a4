"""`headway diff` and `apply --dry-run`, which show what would be stored after the server's defaults and checks."""

import json
from pathlib import Path

import pytest

from headway import manifest
from headway.engine import Network, open_engine
from headway.storage import MemoryBackend
from tests.cli.conftest import CORE
from tests.cli.terminal import Terminal
from tests.helpers.older import Old, known, program, read_whole, whole, write_whole

ADA = "type: bank.v1.Account\nname: ada\n"


async def test_diff_shows_what_apply_would_change(headway: Terminal, tmp_path: Path) -> None:
    """A difference is a unified diff and exit code 7. Nothing is stored."""
    (tmp_path / "core.yaml").write_text(CORE)
    new = await headway("diff", "-f", "core.yaml")
    assert (new.returncode, new.stdout.splitlines()[0]) == (7, "--- stored: nothing")
    assert (await headway("get", "team", "core")).returncode == 3
    await headway("apply", "-f", "core.yaml")

    same = await headway("diff", "-f", "core.yaml")
    assert (same.returncode, same.stdout, same.stderr) == (0, "", "")
    other = await headway("diff", "-f", "-", stdin=CORE.replace("login: grace", "login: katherine"))
    assert other.returncode == 7
    assert [line for line in other.stdout.splitlines() if line[0] in "+-"] == [
        "--- stored: Team core",
        "+++ given: Team core",
        "-  - login: grace",
        "+  - login: katherine",
    ]


async def test_diff_omits_what_apply_preserves(headway: Terminal) -> None:
    """Stored finalizers and a stored owner don't differ from a manifest without them."""
    await headway("apply", "-f", "-", stdin="type: Site\nname: north\n")
    owned = CORE.replace("data:", "metadata: {finalizers: cleanup}\nowner: {type: Site, name: north}\ndata:")
    await headway("apply", "-f", "-", stdin=owned)

    for text in (CORE, owned):
        assert (await headway("diff", "-f", "-", stdin=text)).returncode == 0


async def test_create_only_replaces_no_resource(headway: Terminal) -> None:
    """The first existing name ends the command with 1. The documents before it are created."""
    await headway("apply", "-f", "-", stdin=CORE)
    before = (await headway("get", "team", "core", "-o", "json")).stdout
    both = f"{ADA}---\n{CORE.replace('grace', 'katherine')}---\n{CORE.replace('core', 'other')}"

    done = await headway("apply", "--create-only", "-f", "-", stdin=both)
    assert (done.returncode, done.stdout) == (1, "Account ada created\n")
    said = "it already exists; leave --create-only out to replace it (1 more not applied)"
    assert done.stderr == f"Error: Team core: {said}\n"
    assert (await headway("get", "team", "core", "-o", "json")).stdout == before
    both_options = await headway("apply", "--create-only", "--dry-run", "-f", "-", stdin=CORE)
    assert both_options.returncode == 2


async def test_dry_run_shows_the_outcome_and_stores_nothing(headway: Terminal) -> None:
    """It ends with 7, like diff. YAML and JSON show the resources that would be stored."""
    await headway("apply", "-f", "-", stdin=CORE)
    version = json.loads((await headway("get", "team", "core", "-o", "json")).stdout)["version"]
    both = f"{ADA}---\n{CORE.replace('grace', 'katherine')}---\n{CORE.replace('core', 'other')}"

    done = await headway("apply", "--dry-run", "-f", "-", stdin=both)
    lines = ["Account ada would be created", "Team core would be changed", "Team other would be created"]
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (7, lines, "")
    shown = await headway("apply", "--dry-run", "-o", "json", "-f", "-", stdin=both)
    assert json.loads(shown.stdout)[0]["data"] == {"login": "ada"}
    assert json.loads((await headway("get", "team", "core", "-o", "json")).stdout)["version"] == version
    assert (await headway("get", "team", "other")).returncode == 3
    same = await headway("apply", "--dry-run", "-f", "-", stdin=CORE)
    assert (same.returncode, same.stdout) == (0, "Team core unchanged\n")


@pytest.mark.parametrize("command", [["diff"], ["apply", "--dry-run"]])
async def test_dry_run_reports_what_the_server_would_refuse(headway: Terminal, command: list[str]) -> None:
    """apply prints the same error."""
    root = f"{ADA}data: {{login: root}}\n"
    done = await headway(*command, "-f", "-", stdin=root)
    applied = await headway("apply", "-f", "-", stdin=root)
    assert done.returncode == applied.returncode == 1
    assert done.stderr == applied.stderr
    assert "login 'root' is reserved" in done.stderr
    absent = f"{ADA}namespace: lab\n"
    done = await headway(*command, "-f", "-", stdin=absent)
    assert done.returncode == 1
    assert "namespace 'lab' not found" in done.stderr
    assert (await headway(*command, "-f", "-", stdin="type: Teem\nname: a\n")).returncode == 4


async def test_removed_metadata_is_a_difference(headway: Terminal) -> None:
    """apply replaces the metadata, so what the manifest no longer has would be removed."""
    await headway("apply", "-f", "-", stdin=f"{ADA}metadata: {{colour: red, size: small}}\n")
    less = f"{ADA}metadata: {{colour: red}}\n"

    shown = await headway("diff", "-f", "-", stdin=less)
    assert shown.returncode == 7
    assert [line.strip() for line in shown.stdout.splitlines()[2:] if line[0] in "+-"] == ["-  size: small"]
    done = await headway("apply", "--dry-run", "-f", "-", stdin=less)
    assert (done.returncode, done.stdout) == (7, "Account ada would be changed\n")
    assert (await headway("apply", "-f", "-", stdin=less)).stdout == "Account ada changed\n"
    assert (await headway("diff", "-f", "-", stdin=less)).returncode == 0


async def test_fields_of_a_newer_program_are_not_a_difference(terminal: Terminal) -> None:
    """The server runs an older program: diff and apply compare the fields that it knows, and keep the others."""
    store = MemoryBackend()
    await write_whole(store)
    older, team = program(Old)
    known_fields = manifest.dump(team.new("core", known(whole())))
    async with open_engine(store, older, network=Network(["127.0.0.1:0"], insecure=True)) as engine:
        headway = Terminal(engine.addresses[0], terminal.nursery)
        for command in (["diff"], ["apply", "--dry-run"], ["apply"]):
            done = await headway(*command, "-f", "-", stdin=known_fields)
            assert (done.returncode, done.stdout, done.stderr) in [(0, "", ""), (0, "Team core unchanged\n", "")]
        other = known_fields.replace("Core", "Kernel").replace("hunter22", "hunter23")
        shown = await headway("diff", "-f", "-", stdin=other)
        assert shown.returncode == 7
        assert [line for line in shown.stdout.splitlines()[2:] if line[0] in "+-"] == [
            "-  title: Core",
            "+  title: Kernel",
            "-  token: (redacted)",
            "+  token: (redacted, changed)",
        ]
        assert (await headway("apply", "-f", "-", stdin=other)).stdout == "Team core changed\n"
    expected = whole()
    expected.title, expected.token = "Kernel", "hunter23"
    assert await read_whole(store) == expected
