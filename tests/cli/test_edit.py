"""`headway edit`: a resource in an editor, which opens again after an error."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from tests.cli.terminal import Terminal

CORE = "type: staff.v1.Team\nname: core\ndata:\n  note: old\n"
EDITOR = """#!{python}
import pathlib, sys

folder = pathlib.Path({folder!r})
number = len(list(folder.glob("seen-*")))
file = pathlib.Path(sys.argv[-1])
text = file.read_text()
(folder / f"seen-{{number}}").write_text(text)
before, after = eval((folder / "edits").read_text())[number]
if before is None:
    sys.exit()
assert before in text, text
file.write_text(text.replace(before, after) if before else after)
"""


@pytest.fixture
def edits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that takes what an editor replaces, each time that it opens. With None it saves nothing."""
    editor = tmp_path / "editor"
    editor.write_text(EDITOR.format(python=sys.executable, folder=str(tmp_path)))
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", str(editor))

    def given(*each: tuple[str | None, str]) -> None:
        (tmp_path / "edits").write_text(repr(each))

    return given


async def seen(folder: Path, number: int) -> str:
    return await trio.Path(folder / f"seen-{number}").read_text()


async def note(headway: Terminal) -> str:
    shown = (await headway("get", "team", "core", "-o", "yaml")).stdout
    return shown.partition("note: ")[2].strip()


async def test_edited_resource_is_stored(headway: Terminal, edits: Callable[..., None], tmp_path: Path) -> None:
    await headway("apply", "-f", "-", stdin=CORE)
    edits(("note: old", "note: new"))
    done = await headway("edit", "teams", "core")
    assert (done.returncode, done.stdout) == (0, "Team core changed\n")
    assert await note(headway) == "new"
    text = await seen(tmp_path, 0)
    assert text.startswith("#: Edit and save the resource below.")
    assert text.partition("\n")[2] == CORE


@pytest.mark.parametrize(
    ("edit", "said", "code"),
    [
        (("note:", "nte:"), "#: Not stored: team.yaml:4:3: data.nte: Team has no field 'nte'; did you mean 'note'?", 4),
        (("name: core", "name: docs"), "#: Not stored: Team docs is another resource than Team core: use", 1),
        (
            ("name: core\n", "name: core\n---\ntype: staff.v1.Team\nname: docs\n"),
            "#: Not stored: the text must have one",
            1,
        ),
    ],
)
async def test_editor_opens_again_with_the_error(
    headway: Terminal,
    edits: Callable[..., None],
    tmp_path: Path,
    edit: tuple[str, str],
    said: str,
    code: int,
) -> None:
    """The text is what the user has written. An empty text then gives up."""
    await headway("apply", "-f", "-", stdin=CORE)
    edits(edit, ("", ""))
    done = await headway("edit", "team", "core")
    again = await seen(tmp_path, 1)
    assert again.startswith(said)
    assert edit[1] in again
    assert done.returncode == code
    assert done.stderr.endswith("Team core is not changed\n")
    assert await note(headway) == "old"


@pytest.mark.parametrize("saves", [True, False])
async def test_edit_replaces_no_other_change(
    headway: Terminal, edits: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saves: bool
) -> None:
    """The editor opens again with what is stored now. The next save replaces it, and an editor without one does not."""
    from headway.cli import _edit

    await headway("apply", "-f", "-", stdin=CORE)
    edits(("note: old", "note: mine"), ("note: mine", "note: mine") if saves else (None, ""))
    edited, notes = _edit._edited, list[str]()

    async def meanwhile(*arguments: object) -> str:
        text = await edited(*arguments)  # type: ignore[arg-type]  # passed on
        if not notes:
            await headway("apply", "-f", "-", stdin=CORE.replace("old", "theirs"))
        notes.append(await note(headway))
        return text

    monkeypatch.setattr(_edit, "_edited", meanwhile)
    done = await headway("edit", "team", "core")
    assert done.stdout == ("Team core changed\n" if saves else "")
    assert done.stderr.endswith("Team core is not changed\n") is not saves
    assert (notes, await note(headway)) == (["theirs", "theirs"], "mine" if saves else "theirs")
    assert "#: Not stored: it has changed since it was read." in await seen(tmp_path, 1)
    assert "#:   note: theirs\n" in await seen(tmp_path, 1)


async def test_editor_that_fails_stores_nothing(
    headway: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await headway("apply", "-f", "-", stdin=CORE)
    latin = tmp_path / "latin"
    latin.write_text("#!/bin/sh\nprintf '\\351' > $1\n")
    latin.chmod(latin.stat().st_mode | stat.S_IXUSR)
    for editor, said in (
        ("false", "ended with status 1"),
        ("/no/editor", "cannot be started"),
        (str(latin), "is not UTF-8"),
    ):
        monkeypatch.setenv("VISUAL", editor)
        done = await headway("edit", "team", "core")
        assert done.returncode != 0
        assert said in done.stderr
    assert await note(headway) == "old"


@pytest.mark.wide
async def test_interrupt_in_the_editor_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal sends Ctrl-C to the command, too. In an editor it has its own meaning."""
    editor = tmp_path / "editor"
    interrupt = "os.kill(os.getppid(), signal.SIGINT)"
    editor.write_text(f"#!{sys.executable}\nimport os, signal, sys\n{interrupt}\nopen(sys.argv[-1], 'w').write('new')")
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("VISUAL", str(editor))
    program = f"""
from headway.cli import _edit, _running

async def main():
    print(await _edit._edited({str(tmp_path / "team.yaml")!r}, "old", []))

_running.run(main)
"""
    done = await trio.run_process([sys.executable, "-c", program], capture_stdout=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"new\n")
