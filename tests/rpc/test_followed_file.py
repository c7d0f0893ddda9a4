"""A followed file is read again after each change of its content, also if its size and its time stay the same."""

from __future__ import annotations

import builtins
import os
from pathlib import Path
from typing import Any

import pytest

from headway import rpc
from headway.rpc import _followed_file
from headway.rpc._followed_file import FollowedFile


def _rewritten(path: Path, text: str) -> None:
    """Write a text of the same length in place, with the same times."""
    before = path.stat()
    with path.open("r+") as file:
        file.write(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


class Frozen:
    """os, but every look at a file finds the times of the first one: as on a file system with a coarse clock."""

    def __init__(self) -> None:
        self._first: os.stat_result | None = None

    def stat(self, path: Any) -> os.stat_result:
        self._first = self._first or os.stat(path)
        return self._first


def test_file_that_is_rewritten_within_a_tick_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    monkeypatch.setattr(_followed_file, "os", Frozen())
    file = FollowedFile(path)
    first = file.digest()
    assert file.digest() == first
    _rewritten(path, "two")
    assert file.digest() != first
    _rewritten(path, "one")
    assert file.digest() == first


def test_long_file_has_changed_by_its_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a collection of authorities of which only the end is new. Its whole content is not compared."""
    monkeypatch.setattr(_followed_file, "_MOST", 4)
    path = tmp_path / "authorities"
    path.write_text("one, two")
    file = FollowedFile(path)
    first = file.digest()
    assert file.digest() == first
    path.write_text("one, two, three")
    assert file.digest() != first


def test_file_whose_modification_time_is_set_back_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is old enough not to be read at each look."""
    path = tmp_path / "token"
    path.write_text("one")
    monkeypatch.setattr(_followed_file, "_COARSEST", -3600.0)
    file = FollowedFile(path)
    first = file.digest()
    before = path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        _rewritten(path, "two")
    assert (path.stat().st_mtime_ns, path.stat().st_size) == (before.st_mtime_ns, before.st_size)
    assert file.digest() != first


def test_file_that_has_not_changed_for_a_while_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    read: list[object] = []
    opened = builtins.open

    def counted(*arguments: Any, **options: Any) -> Any:
        read.append(arguments[0])
        return opened(*arguments, **options)

    monkeypatch.setattr(builtins, "open", counted)
    monkeypatch.setattr(_followed_file, "_COARSEST", -3600.0)
    file = FollowedFile(path)
    assert file.digest() == file.digest() is not None
    assert read == [path]


def test_file_has_changed_when_others_may_no_longer_read_it(tmp_path: Path) -> None:
    """A server refuses a renewed key with a wide mode, and the error says which `chmod` helps."""
    path = tmp_path / "key"
    path.write_text("one")
    path.chmod(0o644)
    file = FollowedFile(path)
    wide = file.digest()
    path.chmod(0o600)
    assert file.digest() != wide


def test_missing_file_and_pipe_have_no_digest(tmp_path: Path) -> None:
    """Reading a pipe would block, or take its content from the reader that it is for."""
    os.mkfifo(tmp_path / "pipe")
    assert FollowedFile(tmp_path / "pipe").digest() is None
    assert FollowedFile(tmp_path / "missing").digest() is None


def test_token_that_is_rewritten_with_equal_size_and_time_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    path.chmod(0o600)
    monkeypatch.setattr(_followed_file, "os", Frozen())
    token = rpc.token_file(path)
    assert token() == "one"
    _rewritten(path, "two")
    assert token() == "two"


def test_renewed_token_is_found_after_the_program_has_changed_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    path.chmod(0o600)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    token = rpc.token_file("token")
    monkeypatch.chdir("elsewhere")
    _rewritten(path, "two")
    assert (token(), repr(token)) == ("two", "token_file('token')")
