"""A check that the caller runs on Trio, with an error that says what to do."""

from __future__ import annotations

import trio

from headway.errors import NotOnTrio


def check_trio(what: str) -> None:
    """Raise NotOnTrio unless the caller is a Trio task. Under asyncio the first wait would fail obscurely."""
    if not trio.lowlevel.in_trio_task():
        raise NotOnTrio(
            f"{what} needs Trio, but Trio is not running: start the program with trio.run(main) instead of "
            "asyncio.run(main()). If a program must stay on asyncio, run Trio alongside it, as shown in "
            "docs/guides/asyncio.md"
        )
