"""Key files: what is wrong with one is said with its name, and without its content."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from mesh.certificates.sealing import Sealing, WrongKeyFile

# A key of a test, so that each run has the same tests.
KEY = base64.urlsafe_b64encode(b"k" * 32)


def written(path: Path, text: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(text)
    path.chmod(mode)
    return path


def test_what_is_sealed_is_opened_with_the_same_file_only(tmp_path: Path) -> None:
    old, new = Fernet.generate_key(), Fernet.generate_key()
    first = Sealing(written(tmp_path / "old", old))
    sealed = first.seal(b"hunter22")
    assert b"hunter22" not in sealed
    assert first.unseal(sealed) == b"hunter22"
    both = Sealing(written(tmp_path / "both", new + b"\n" + old + b"\n"))
    assert both.unseal(sealed) == b"hunter22"
    other = Sealing(written(tmp_path / "new", new))
    assert other.unseal(both.seal(b"hunter22")) == b"hunter22"
    for wrong in (sealed, sealed[:-5], b""):
        with pytest.raises(WrongKeyFile, match=f"the key file {tmp_path / 'new'} does not open") as caught:
            other.unseal(wrong)
        assert old.decode() not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b"", "has 0 lines"),
        (b"hunter22", "line 1 is not a key"),
        (KEY + b"\nhunter22", "line 2 is not a key"),
        (b"\xff\xfe hunter22", "is not a text"),
        ((KEY + b"\n") * 9, "has 9 lines, and must have 1 to 8"),
    ],
)
def test_wrong_file_is_named_and_not_quoted(tmp_path: Path, text: bytes, match: str) -> None:
    path = written(tmp_path / "mesh.key", text)
    with pytest.raises(WrongKeyFile, match=match) as caught:
        Sealing(path)
    shown = repr((caught.value, caught.value.__cause__))
    assert str(path) in shown
    assert "hunter22" not in shown


def test_missing_file_and_one_that_others_can_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongKeyFile, match=r"No such file.*missing"):
        Sealing(tmp_path / "missing")
    path = written(tmp_path / "open", Fernet.generate_key(), 0o644)
    with pytest.raises(WrongKeyFile, match=r"open.*0644"):
        Sealing(path)


def test_command_makes_a_file_for_its_owner_and_replaces_none(tmp_path: Path) -> None:
    path = tmp_path / "mesh.key"
    command = [sys.executable, "-m", "mesh.certificates"]
    subprocess.run([*command, path], check=True, timeout=30)
    assert path.stat().st_mode & 0o777 == 0o600
    content = path.read_bytes()
    Sealing(path)
    again = subprocess.run([*command, path], check=False, timeout=30, capture_output=True, text=True)
    assert (again.returncode, path.read_bytes()) == (1, content)
    assert str(path) in again.stderr
    assert subprocess.run(command, check=False, timeout=30, capture_output=True).returncode == 2
