"""The programs in the documents run as they stand, and print what the text says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PRINTS = {
    "README.md": "['ada', 'grace']\n",
    "docs/quickstart.md": "['ada', 'grace']\n['ada', 'grace']\n",
    "docs/guides/controllers.md": "['/ -> :8080']\n",
    "docs/guides/access.md": "True False\naccess.yaml:1:1: others than its owner can reach this file (mode 0644): "
    "chmod 600 access.yaml\nTrue\nFalse\nTrue\nthe token is not valid here: it may be mistyped, expired or revoked\n"
    "False False\n",
}


@pytest.mark.parametrize("page", PRINTS)
def test_the_program_of_a_page_runs(page: str, tmp_path: Path) -> None:
    """The Python blocks of a page, one after the other, are a program that prints what the page says."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    program = tmp_path / "program.py"
    program.write_text("\n".join(blocks))

    done = subprocess.run(
        [sys.executable, "-W", "error", program.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert (done.stdout, done.stderr) == (PRINTS[page], "")


def test_every_python_block_belongs_to_a_tested_page() -> None:
    """A page with Python in it is one of those that are run."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]

    assert {str(page.relative_to(ROOT)) for page in pages if "```python" in page.read_text()} == set(PRINTS)


def test_every_link_between_pages_leads_somewhere() -> None:
    """Relative links in the documents name files that exist."""
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
