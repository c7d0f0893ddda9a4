"""The file of a story's page, at the path or in the folder that HEADWAY_STORY names."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from headway.testing.simulation.faults import Plan
from headway.testing.simulation.oracles import Finding, Result
from headway.testing.simulation.stories._page import page
from headway.testing.simulation.stories._report import current_test, story

_TEST = "{test}"
_LONGEST = 120
_written: dict[Path, str] = {}
"""The files that this process has written, each with the test whose story it is."""


def told(plan: Plan, result: Result, findings: Sequence[Finding]) -> str:
    """Return the story of a failed run. Write its page if HEADWAY_STORY is set, and name the file in the last line."""
    return "\n".join([story(plan, result, findings), *save_page(plan, result, findings)])


def save_page(plan: Plan | None, result: Result, findings: Sequence[Finding]) -> list[str]:
    """Write the page of a story if HEADWAY_STORY is set. Return the lines that say where it is, or why it is not."""
    given = os.environ.get("HEADWAY_STORY", "")
    if not given:
        return []
    test = current_test()
    try:
        where, earlier = _where(given, test)
        text = page(test or "A run that failed", plan, result, findings)
        where.write_text(text, encoding="utf-8", errors="backslashreplace")
    except (OSError, _BadValue) as error:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        return ["", f"page: not written, HEADWAY_STORY={given!r}: {why}"]
    _written[where] = test
    return ["", f"page: {where}{' (in place of an earlier story of this test)' if earlier else ''}"]


class _BadValue(Exception):
    """HEADWAY_STORY names no file that can be written."""


def _where(given: str, test: str) -> tuple[Path, bool]:
    """Return the file to write, and True if it has an earlier story of the same test."""
    path = Path(given).expanduser().absolute()
    if given.endswith("/") or path.is_dir():
        path = path / f"{_TEST}.html"
    elif path.suffix not in (".html", ".htm"):
        raise _BadValue("expected a folder, or a file name that ends with .html, such as story.html")
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if _TEST not in str(path) and worker:
        # Workers do not know of each other's files.
        path = path.with_stem(f"{path.stem}-{worker}")
    path = Path(str(path).replace(_TEST, _file_name(test)))
    if not path.parent.is_dir():
        raise _BadValue(f"the folder {path.parent} does not exist; create it, or name another one")
    free, number = path, 1
    while free in _written and not (test and _written[free] == test):
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    return free, free in _written


def _file_name(test: str) -> str:
    """Return a test's name as a part of a file name. If it must be changed for that, a digest makes it unique."""
    plain = test.replace("::", ".").replace("/", ".")
    safe = re.sub(r"[^\w.-]+", "-", plain, flags=re.ASCII)
    if safe != plain or len(safe) > _LONGEST:
        safe = f"{safe[:_LONGEST].strip('-')}-{hashlib.sha256(test.encode()).hexdigest()[:6]}"
    return safe or "story"
