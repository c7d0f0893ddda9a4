"""The journal in a file: one JSON object a line, rotated, and never in the way of the engine."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.errors import DeclarationError
from headway.journal import Happened, JournalFile, JournalOptions, Ran
from headway.journal import _file as file_module
from tests.helpers.why_programs import Team, broken_app, eventually


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def sizes_in(folder: Path) -> dict[str, int]:
    return {each.name: each.stat().st_size for each in folder.iterdir()}


def modes_in(folder: Path) -> list[int]:
    return [each.stat().st_mode & 0o777 for each in folder.iterdir()]


async def test_file_has_what_happened_before_a_crash(tmp_path: Path) -> None:
    """Every line is in the file while the engine still runs: a kill could follow."""
    path = tmp_path / "journal.jsonl"
    app, team = broken_app()
    async with headway.open_engine("memory:", app, journal=path) as engine:
        await engine.client.apply(team.new("core", Team()))

        async def seen() -> list[dict[str, Any]] | None:
            found = lines(path)
            return found if any(each["what"] == "ran" for each in found) else None

        found = await eventually(seen)
    ran = next(each for each in found if each["what"] == "ran")
    assert (ran["controller"], ran["key"], ran["outcome"]) == ("staff/teams", "core", "failed")
    assert ran["error"] == "ValueError: core has no lead"
    [read] = ran["reads"]
    assert re.fullmatch(r"Team core at version \d+", read)
    written = next(each for each in found if each["what"] == "written")
    assert (written["type"], written["key"], written["verb"]) == ("staff.v1.Team", "core", "created")
    assert {"RunStarted", "Primed"} <= {each["what"] for each in found}
    assert all(isinstance(each["at"], float) for each in found)


async def test_end_of_the_engine_is_in_the_file(tmp_path: Path) -> None:
    """What the last moment brought is written when the block ends, even without memory for it."""
    path = tmp_path / "journal.jsonl"
    app, team = broken_app()
    async with headway.open_engine("memory:", app, journal=JournalOptions(str(path), memory=0)) as engine:
        await engine.client.apply(team.new("core", Team(lead="ada")))
        await engine.wait_idle()
    assert [each["outcome"] for each in lines(path) if each["what"] == "ran"][-1] == "done"


async def test_file_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may change its directory."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    file = JournalFile("journal.jsonl", lambda at: at)
    monkeypatch.chdir("elsewhere")
    file.put("staff/teams", Ran(1, ("", "", "core"), "done", 0.1, 0.0, 1, ()))
    await file.finish()
    assert [each["key"] for each in lines(tmp_path / "journal.jsonl")] == ["core"]
    assert sizes_in(tmp_path / "elsewhere") == {}


async def test_file_is_rotated(tmp_path: Path) -> None:
    """At most two files exist, and none is longer than the limit."""
    path = tmp_path / "journal.jsonl"
    file = JournalFile(path, lambda at: at, limit=2000)
    for number in range(40):
        file.put("staff/teams", Ran(number, ("", "", f"team-{number}"), "done", 0.1, 0.0, 1, ()))
        await file.finish()
    sizes = sizes_in(tmp_path)
    assert sorted(sizes) == ["journal.jsonl", "journal.jsonl.1"]
    assert max(sizes.values()) <= 2000
    assert lines(path)[-1]["key"] == "team-39"


async def test_lines_that_the_disk_is_too_slow_for_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer is bounded, and the file says what it lacks."""
    monkeypatch.setattr(file_module, "BUFFER", 3)
    path = tmp_path / "journal.jsonl"
    file = JournalFile(path, lambda at: at)
    for number in range(5):
        file.put("staff/teams", Ran(number, ("", "", "core"), "done", 0.1, 0.0, 1, ()))
    await file.finish()
    assert [each["what"] for each in lines(path)] == ["ran", "ran", "ran", "lost"]
    assert lines(path)[-1] == {"what": "lost", "lines": 2}


async def test_engine_goes_on_when_the_file_cannot_be_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is said once, on standard error."""
    path = tmp_path / "folder" / "journal.jsonl"
    path.parent.mkdir()
    file = JournalFile(path, lambda at: at)
    path.unlink()
    path.parent.rmdir()
    for _ in range(2):
        file.put("staff/teams", Ran(1.0, ("", "", "core"), "done", 0.1, 0.0, 1, ()))
        await file.finish()
    assert capfd.readouterr().err.count("cannot be written; the engine continues") == 1


async def test_wrong_path_is_an_error_at_the_start(tmp_path: Path) -> None:
    app, _ = broken_app()
    with pytest.raises(FileNotFoundError):
        async with headway.open_engine("memory:", app, journal=tmp_path / "none" / "journal.jsonl"):
            pass


async def test_journal_that_is_not_a_path_is_refused() -> None:
    app, _ = broken_app()
    with pytest.raises(DeclarationError, match=r"path must be a string or a path, such as 'journal.jsonl', not 7"):
        async with headway.open_engine("memory:", app, journal=7):  # type: ignore[arg-type]  # that is the point
            pass


async def test_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Tracebacks may quote payloads, and the store that has them is for its owner alone, too. So is a rotated file."""
    path = tmp_path / "journal.jsonl"
    file = JournalFile(path, lambda at: at, limit=1)
    assert path.stat().st_mode & 0o777 == 0o600
    for _ in range(2):
        file.put("staff/teams", Happened(1.0, "RunEnded", {"error": "x"}))
        await file.finish()
    assert modes_in(tmp_path) == [0o600, 0o600]


async def test_file_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    """An operator may let a collector of logs read it."""
    path = tmp_path / "journal.jsonl"
    path.touch(0o640)
    path.chmod(0o640)
    JournalFile(path, lambda at: at)
    assert path.stat().st_mode & 0o777 == 0o640


async def test_pipe_that_nothing_reads_is_refused_at_the_start(tmp_path: Path) -> None:
    """It would block the engine where it is opened."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe"):
        JournalFile(tmp_path / "pipe", lambda at: at)


TORN = '{"at": 1.0, "what": "ran", "contr'


def put_two(file: JournalFile) -> None:
    for at in (2.0, 3.0):
        file.put("staff/teams", Happened(at, "RunEnded", {"error": "x"}))


async def test_torn_line_of_a_crash_takes_no_other_line_with_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(f'{{"at": 0.5}}\n{TORN}')
    file = JournalFile(path, lambda at: at)
    for _ in range(2):
        put_two(file)
        await file.finish()
    first, torn, *rest = path.read_text().splitlines()
    assert (first, torn) == ('{"at": 0.5}', TORN)
    assert [json.loads(each)["at"] for each in rest] == [2.0, 3.0, 2.0, 3.0]


async def test_torn_line_of_a_full_disk_takes_no_other_line_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines that were not written are counted in the next one."""
    path = tmp_path / "journal.jsonl"
    file = JournalFile(path, lambda at: at)

    def fail(*_: object) -> int:
        path.write_text(TORN)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(file_module, "_open", fail)
        put_two(file)
        await file.finish()
    put_two(file)
    await file.finish()
    torn, *rest = path.read_text().splitlines()
    assert torn == TORN
    assert [json.loads(each).get("lines") for each in rest] == [None, None, 2]


async def test_rotation_leaves_a_torn_line_behind(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(TORN)
    file = JournalFile(path, lambda at: at, limit=len(TORN) + 1)
    put_two(file)
    await file.finish()
    assert (tmp_path / "journal.jsonl.1").read_text() == TORN
    assert [each["at"] for each in lines(path)] == [2.0, 3.0]


async def test_lines_in_a_pipe_are_only_written(tmp_path: Path) -> None:
    """What they followed has gone to the reader."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        file = JournalFile(tmp_path / "pipe", lambda at: at)
        for _ in range(2):
            put_two(file)
            await file.finish()
        received = os.read(reader, 4096).decode()
    finally:
        os.close(reader)
    assert [json.loads(each)["at"] for each in received.splitlines()] == [2.0, 3.0, 2.0, 3.0]


async def test_hostile_text_cannot_end_a_line_or_reach_a_terminal(tmp_path: Path) -> None:
    """Neither by the breaks that `str.splitlines` knows, nor by 8-bit controls. Other text stays readable."""
    path = tmp_path / "journal.jsonl"
    file = JournalFile(path, lambda at: at)
    hostile = "über\n\x1b[31m\x9b31m\x7f\x85\u2028\u2029\u202e\ud800"
    file.put("staff/teams", Happened(1.0, "RunEnded", {"error": hostile}))
    await file.finish()
    text = path.read_bytes().decode()
    assert "über" in text
    assert text[:-1].isprintable()
    assert json.loads(text)["error"] == hostile
