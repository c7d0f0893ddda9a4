"""The example whose files follow two watched types."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.fleet_kit import PATIENCE, ROOT

EXAMPLE = ROOT / "examples" / "02_site.py"


@pytest.mark.wide
def test_files_of_a_site_follow_its_pages_and_its_theme(tmp_path: Path) -> None:
    """A site without a theme has no files. A file is removed with its page, and the directory with the site."""
    ended = subprocess.run(
        [sys.executable, str(EXAMPLE), str(tmp_path)], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    said = ended.stdout.splitlines()
    assert [line for line in said if line.startswith("{")] == [
        "{}",
        "{'about.html': '<p>About us</p>', 'index.html': '<p>Welcome</p>'}",
        "{'index.html': '<h1>Welcome</h1>'}",
        "{}",
    ]
    assert "no theme 'plain'" in said[0]
    assert list(tmp_path.iterdir()) == []
