"""The check that a caller is on Trio, which says what to do where it is not."""

from __future__ import annotations

import trio

from headway.errors import NotOnTrio


def check_trio(what: str) -> None:
    """Raise NotOnTrio unless the caller is a task of Trio. Under asyncio the first wait would fail without a reason."""
    if not trio.lowlevel.in_trio_task():
        raise NotOnTrio(
            f"{what} needs Trio, and no Trio is running here: start the program with trio.run(main) instead of "
            "asyncio.run(main()). A program that must stay on asyncio runs Trio beside it, as docs/guides/asyncio.md "
            "shows"
        )
