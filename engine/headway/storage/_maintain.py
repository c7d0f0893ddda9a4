"""What is done to a whole store, by its url: backing it up, making one of a backup, and checking it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from typing import TypeVar

import trio

from headway.errors import InvalidArgument
from headway.storage._schemas import ListsResources
from headway.storage._sqlite_backup import BackedUp, Hold, Restored, backup_file, restore_file
from headway.storage._sqlite_check import Checked, Finding, look_at_file
from headway.storage._sqlite_lists import FileLists
from headway.storage._sqlite_url import parse_url
from headway.storage._unfinished import UNFINISHED, UNFINISHED_KIND
from headway.storage._verify import Verified

R = TypeVar("R")


async def backup_store(url: str, file: str | os.PathLike[str], *, replace: bool = False) -> BackedUp:
    """Make ``file`` a backup of the store at ``url``: all of it at one revision, checked, in one file.

    Any process may have the store open and write to it meanwhile, this one too.

    Args:
        url: ``sqlite:PATH``.
        replace: a file that is there is replaced, in one step, when the backup is whole.

    Raises StoreUnusable when there is no store, it is damaged, or the file can't be made; FailedPrecondition when the
    file is there; InvalidArgument for a store that isn't in a file. The file is then as it was.
    """
    path = _path(url)
    return await _interruptibly(lambda hold: backup_file(path, os.fspath(file), replace=replace, hold=hold))


async def restore_store(file: str | os.PathLike[str], url: str, *, replace: bool = False) -> Restored:
    """Make a store at ``url`` of a backup, or of a copy of a store's file.

    It has the resources, the history and the settled marks of the backup. It is another store, though: with an id of
    its own, and above every revision and every term that the first one can have given out since. So every watch and
    cache begins anew, and a write that was decided on by what was seen before is refused.

    Args:
        url: ``sqlite:PATH``; no process may have that open.
        replace: a store that is there is replaced, in one step. Its file is kept beside it, as ``PATH.replaced``.

    Raises StoreUnusable when the file can't be used, or the store is held by a process; FailedPrecondition when there
    is a store; InvalidArgument for a url that isn't a file's. What was there is then as it was.
    """
    path = _path(url)
    return await _interruptibly(lambda hold: restore_file(os.fspath(file), path, replace=replace, hold=hold))


async def check_store(url: str) -> list[Finding]:
    """What is wrong with the store at ``url`` (``sqlite:PATH``, also of a backup); nothing when it is whole.

    Reads all of it and writes nothing; a server may have it open. Raises StoreUnusable when there is no store.
    """
    return (await _checked(url)).findings


async def verify_file(url: str) -> Verified:
    """As `verify_store`, of a file that needn't be opened: what stands in it at one moment, and what is wrong with it.

    Takes what `check_store` takes, and finds what that finds. Where the file is damaged so that it doesn't say which
    store it is, ``position`` has no store id.
    """
    checked = await _checked(url)
    problems = list(map(str, checked.findings))
    if UNFINISHED_KIND in checked.resources:
        problems.append(UNFINISHED)
    return Verified(checked.position, checked.oldest, dict(checked.resources), problems)


def file_lists(url: str) -> ListsResources | None:
    """Return the resources in the file of the store at ``url``, which isn't opened; None for another sort of store."""
    parsed = parse_url(url)
    return None if parsed is None else FileLists(parsed.path)


async def _checked(url: str) -> Checked:
    path = _path(url)
    return await trio.to_thread.run_sync(lambda: look_at_file(os.path.realpath(path)))


def _path(url: str) -> str:
    parsed = parse_url(url)
    if parsed is None:
        raise InvalidArgument(f'{url!r} names no store in a file; write "sqlite:PATH", like "sqlite:staff.db"')
    return parsed.path


async def _interruptibly(work: Callable[[Hold], R]) -> R:
    """Do it in a worker thread; cancelled, what SQLite is at is interrupted, and nothing of it stays."""
    connections: list[sqlite3.Connection] = []
    results: list[R] = []
    errors: list[Exception] = []

    def thread() -> None:
        try:
            results.append(work(connections.append))
        except Exception as error:  # noqa: BLE001  # raised below, out of the nursery's group
            errors.append(error)

    async def interrupt_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            if connections:
                _interrupt(connections[-1])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(interrupt_when_cancelled)
        await trio.to_thread.run_sync(thread)
        nursery.cancel_scope.cancel()
    if errors:
        # Had it been interrupted, its error would stand for a cancellation.
        await trio.lowlevel.checkpoint_if_cancelled()
        raise errors[0]
    return results[0]


def _interrupt(connection: sqlite3.Connection) -> None:
    try:
        connection.interrupt()
    except sqlite3.ProgrammingError:
        return  # It was closed a moment ago.
