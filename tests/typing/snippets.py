"""Write the Python blocks of each page of the documentation to a module, for the type checkers."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_of(page: Path) -> list[str]:
    """Return the Python blocks of a page, in order."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def write_snippets(folder: Path) -> list[Path]:
    """Write a module for each page with Python blocks, unless it exists unchanged. Return the paths of the modules."""
    folder.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    for page in PAGES:
        blocks = blocks_of(page)
        if blocks:
            name = "_".join(page.relative_to(ROOT).with_suffix("").parts).replace("-", "_").lower()
            module, text = folder / f"page_{name}.py", "\n".join(blocks)
            made.append(module)
            if not module.exists() or module.read_text() != text:
                module.write_text(text)
    for old in set(folder.glob("page_*.py")) - set(made):
        old.unlink()
    return made


if __name__ == "__main__":
    write_snippets(Path(sys.argv[1]))
