"""The programs in the documentation run unchanged, and print the documented output."""

import ast
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import headway
from headway import field

ROOT = Path(__file__).parent.parent
PRINTS = {
    "README.md": "['ada', 'grace']\n",
    "docs/quickstart.md": "['ada', 'grace']\n['ada', 'grace']\n",
    "docs/guides/controllers.md": "a change of mesh.v1.Table makes mesh/tables write mesh.v1.Table\n"
    "['/ -> :8080']\n['ada', 'joan', 'grace']\n"
    "Exceeded TRUE ('mesh.v1.Table by mappers.index(<Index kind on mesh.v1.Limit>)',)\n[] running 1\n",
    "docs/guides/cache.md": "1 routes, new serves it, certified: True\n['new']\n",
    "docs/guides/mappers.md": "['core']\n['core', 'tools']\n[]\n['tools']\n",
    "docs/guides/lifecycles.md": "at / {'home'} ['sites']\n"
    "controller web/sites is paused (an audit) and has pending work: resume it with `headway resume web/sites`\n"
    "'nowhere' is not a path\n"
    "[] set() ['home begins', 'home ends', 'home is checked']\n",
    "docs/guides/steps.md": "receipt for 5, letter 1 [5] 2\ncharge-card TRUE Done receipt for 5\n"
    "send-letter TRUE Done letter 1\n",
    "docs/guides/observing.md": "running ['staff.v1.Team: 1']\n"
    'headway_reconcile_total{controller="staff/teams",outcome="done"} 1.0\nTooLarge 3 members, and 2 are allowed 1\n',
    "docs/guides/tutorial.md": "['10.0.0.1:80', '10.0.0.2:80']\n['10.0.0.2:80']\nTRUE 1 of 2 workloads are healthy\n",
    "docs/guides/cookbook.md": "1 43\nAlive FALSE Done TRUE 2 of 2\n",
    "docs/guides/testing.md": "['write ada', 'write grace', 'status core'] 3600\n"
    "[('core', 'changed')]\n['ada', 'grace']\nTrue []\nTrue\n",
    "docs/guides/proving.md": "True\nTrue\n",
    "docs/guides/limits.md": "small resources 1 1 1\nTrue True\n",
    "docs/guides/network.md": "['ada', 'grace']\n",
    "docs/guides/http.md": "True\n",
    "docs/guides/asyncio.md": "reconciles core ['ada']\n['core']\n",
    "docs/guides/client.md": "['ada'] None\nTrue\ncore has changed since it was read\n"
    "Team core already exists; read it, or replace it by a Write without create_only (in Python client.write)\n"
    "Service(image='web:1', replicas=3)\n{'image': ('releases',), 'replicas': ('scaler',)}\n"
    "Service web: replicas belongs to scaler: leave it out, apply the same value, or take it over with force=True\n"
    "{'image': ('releases',), 'replicas': ('releases',)}\nService(image='web:1')\n"
    "['core', 'docs', 'tools']\n['docs']\n['core', 'docs']\n['tools']\n"
    "upserted core ['ada', 'grace']\nthis was the snapshot\ndeleted core\nprogress\nupserted core ['joan']\n"
    "joan is a member\n",
    "docs/guides/subscribing.md": "core ['ada']\n2 0.0\n['core'] 1.0 ['hello']\n['core', 'docs'] None False\n"
    "snapshot ['ada', 'core', 'docs']\nchange ['core', 'docs']\nFalse ['docs']\nEUR 108\nCHF 112\n",
    "docs/guides/types.md": "Team core Badge ada\nRobot(login='r2', token='(redacted)')\n['grace', 'ada']\n[]\n"
    "Team core: lead is required, such as 'ada'\n",
    "docs/guides/stores.md": "True True []\n['ada']\n",
    "docs/guides/evolving.md": "Core\nthe store has other schemas than this program:\n"
    "staff.v1.Team.name (field 1): expected string as stored, got int64; "
    "keep string, or use a new number, such as field(4)\n"
    "staff.v1.Team.members (field 3): expected 'members' as stored, got no such field; "
    "declare @headway.message(reserved={3: 'members'}) for Team\n"
    "[('ada', 'lead'), ('grace', '')] B12\n",
    "docs/guides/placement.md": "reports core in term 1\nstandby while server leads\n"
    "1 False web-1\n[('devices/press', 'web-1')]\n",
    "docs/guides/extending.md": "CountReply(calls=1)\n",
    "docs/guides/stores-of-your-own.md": "['an_acknowledged_write_is_read', "
    "'a_later_read_never_has_a_lower_position', 'a_delivered_change_is_in_every_later_read']\n",
    "docs/guides/peering.md": "DIALS east\nada ['originPartition', 'originUid', 'originVersion', 'tier']\nNone\n",
    "docs/guides/access.md": "True False\nthe token is not valid here: it may be mistyped, expired or revoked\n",
}


ELSEWHERE = {"docs/guides/kubernetes.md", "docs/guides/kubernetes-operator.md"}
"""The pages whose programs need another server: `tests/kubernetes/test_guide.py` and `test_kubectl.py`."""

_BLOCKED = re.compile(r"^.*\[warning  \] LoopBlocked .*\n(?:(?:  .*)?\n)*", re.MULTILINE)
"""The warning that a busy machine did not let the program run for a second, with its stack."""


@headway.message
class Account:
    login: str = field(1)


_FAILS_LATER = """            while not await opened.client.list(TEAM):
                await trio.sleep(0.01)
            raise RuntimeError("the engine failed later")

    async with trio_beside"""
"""What the engine of the page about asyncio does in place of sleeping forever."""


def program_of(page: str) -> str:
    """Return the Python blocks of a page as one program."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL))


def printed(page: str, folder: Path) -> tuple[str, str]:
    """Run the program of a page in a folder. Return its output on stdout and stderr."""
    return run(program_of(page), folder)


def run(program: str, folder: Path, **environment: str) -> tuple[str, str]:
    """Run a program in a folder. Return its output on stdout and stderr."""
    (folder / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-W", "error", "program.py"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    return _BLOCKED.sub("", done.stdout), done.stderr


FIRST = ("README.md", "docs/quickstart.md", "docs/guides/controllers.md", "docs/guides/network.md")
"""The pages whose programs the default run starts. Each program takes a second of processor time in its process."""


# A page that explores needs some seconds of processor time, which may take long on a busy machine.
@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    "page", [pytest.param(each, marks=() if each in FIRST else pytest.mark.wide) for each in PRINTS]
)
def test_program_of_a_page_prints_the_documented_output(page: str, tmp_path: Path) -> None:
    """The Python blocks of a page, in order, are one program."""
    assert printed(page, tmp_path) == (PRINTS[page], "")


def documents() -> list[Path]:
    """Return the files with programs for readers."""
    return [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/**/*.md"))]


def starts_at_import(program: str) -> list[str]:
    """Return the statements that a module would run its program by when it is imported."""
    return [
        ast.unparse(each)
        for each in ast.parse(program).body
        if isinstance(each, ast.Expr)
        and isinstance(each.value, ast.Call)
        and isinstance(each.value.func, ast.Attribute)
        and each.value.func.attr == "run"
    ]


@pytest.mark.parametrize("page", documents(), ids=lambda page: str(page.relative_to(ROOT)))
def test_import_of_a_documented_program_does_not_run_it(page: Path) -> None:
    """`headway serve` imports the program, and so does its proof."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    found = []
    for block in blocks:
        with suppress(SyntaxError):  # a part of a program
            found += starts_at_import(block)
    assert found == []


def test_import_of_an_example_does_not_run_it() -> None:
    files = [*ROOT.glob("examples/*.py"), *ROOT.glob("examples/**/*.py")]
    assert len(files) > 20
    assert {file.name: found for file in files if (found := starts_at_import(file.read_text()))} == {}


@pytest.mark.wide
@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("change", "error"),
    [
        (('"memory:"', '"sqlite:/nonexistent/staff.db"'), "StoreUnusable"),
        (
            ("            await trio.sleep_forever()\n\n    async with trio_beside", _FAILS_LATER),
            "RuntimeError: the engine failed later",
        ),
    ],
)
def test_failure_of_an_engine_in_an_asyncio_program_ends_it(
    change: tuple[str, str], error: str, tmp_path: Path
) -> None:
    """The program of the page ends with the error of its engine, whether it cannot start or fails later."""
    program = program_of("docs/guides/asyncio.md")
    assert change[0] in program
    # A program that fails later would otherwise be done before.
    program = program.replace(*change).replace("await opened.wait_idle()", "await trio.sleep_forever()")
    _, shown = run(program, tmp_path)
    assert error in shown


def test_story_in_the_guide_is_the_real_output(tmp_path: Path) -> None:
    """Every line is as pytest would show it."""
    text = (ROOT / "docs/guides/proving.md").read_text()
    shown = re.search(r"<!-- the story, as it is printed -->\n```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    before = [block for block in blocks if text.index(block) < text.index("<!-- the story")]
    test = "tests/test_staff.py::test_accounts (call)"
    assert shown is not None
    assert run("\n".join([*before, "print(story)"]), tmp_path, PYTEST_CURRENT_TEST=test) == (shown[1], "")


def test_scenario_of_the_readme_proves_its_program(tmp_path: Path) -> None:
    """The test passes, even though the process is killed."""
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    program = "\n".join([*blocks, "test_accounts()"])
    output, wrong = run(program, tmp_path, HEADWAY_PLAN="crash_after(1)")
    assert "1 runs" in output
    assert "crash_after  1 of 1" in output
    assert wrong == ""


def test_defaults_of_a_controller_are_those_of_the_guide() -> None:
    """The guide names the defaults of concurrency, deadline, back-off and name."""
    app = headway.App("staff")

    @app.controller(manages=app.type("staff", "v1", "Account", Account))
    async def all_accounts(_: headway.Runtime, request: headway.Request) -> None:
        """Do nothing."""

    made = app.controllers["all-accounts"]
    assert (made.concurrency, made.deadline) == (1, 300)
    assert (made.backoff.delay(0), made.backoff.delay(1), made.backoff.delay(99)) == (0.005, 0.01, 1000)


def test_every_page_with_python_is_tested() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]

    assert {str(page.relative_to(ROOT)) for page in pages if "```python" in page.read_text()} == set(PRINTS) | ELSEWHERE


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]


def links(page: Path) -> list[tuple[Path, str]]:
    """Return the targets of a page's relative links, as files and headings."""
    found = re.findall(r"\]\((?!\w+:)([^)#]*)#?([^)]*)\)", page.read_text())
    return [((page.parent / file).resolve() if file else page, heading) for file, heading in found]


def test_every_link_between_pages_is_valid() -> None:
    """The file exists, and it has the heading."""
    for page in PAGES:
        for file, heading in links(page):
            assert file.exists(), f"{page.name} links to {file}"
            if heading:
                heads = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
                anchors = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
                assert heading in anchors, f"{page.name} links to {heading} in {file.name}"


def test_every_page_is_reachable_from_the_readme() -> None:
    """Links lead from page to page."""
    reached: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            ahead += [file for file, _ in links(page)]
    assert set(PAGES) <= reached
