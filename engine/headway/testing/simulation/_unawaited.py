"""Calls that are never awaited, and blocks that are never entered: nothing happens, and the run may look right."""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

_MISTAKE = r"coroutine '.*' was never awaited|an async block was never entered"


@contextmanager
def unawaited(found: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, call ``found`` with the name and the line of each such call instead of warning."""
    with warnings.catch_warnings():
        # Also where warnings are errors: one that is raised while an object is dropped reaches nobody.
        warnings.filterwarnings("always", _MISTAKE, RuntimeWarning)
        before = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            text = str(message).partition("\n")[0]
            if category is RuntimeWarning and ("was never awaited" in text or "was never entered" in text):
                source = linecache.getline(filename, lineno).strip()
                found(f"{text}, at {filename}:{lineno}{source and f': {source}'}")
            else:
                before(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield
