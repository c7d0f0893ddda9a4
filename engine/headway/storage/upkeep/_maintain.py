"""Operations on a whole store, given by its URL: back it up, restore it, and check it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import outcome
import trio

from headway.base import without_password
from headway.errors import InvalidArgument
from headway.storage._backend import ListsResources
from headway.storage._open import UNFINISHED, UNFINISHED_KIND
from headway.storage.sqlite._backup import BackedUp, Hold, OnBytes, Restored, backup_file, restore_file
from headway.storage.sqlite._check import Checked, FileLists, Finding, check_file
from headway.storage.sqlite._inspect import refuse_unfinished
from headway.storage.sqlite._url import parse_url
from headway.storage.upkeep._progress import OnProgress, Progress
from headway.storage.upkeep._verify import Verified

R = TypeVar("R")


async def backup_store(
    url: str, file: str | os.PathLike[str], *, replace: bool = False, progress: OnProgress | None = None
) -> BackedUp:
    """Write a backup of the store at ``url`` to ``file``, and check it.

    The backup contains the whole store at one revision. Any process, including this one, may have the store open and
    write to it during the backup.

    Args:
        url: ``sqlite:PATH``.
        file: the file to write.
        replace: replace an existing file, atomically, once the backup is complete.
        progress: called in the worker thread, with the bytes written so far and the bytes in the store.

    Raises:
        StoreUnusable: no store exists at ``url``, it is damaged, or the file cannot be written.
        FailedPrecondition: the file already exists.
        InvalidArgument: the store is not in a file.

    An error leaves the file as it was.
    """
    path = _path(url)
    wrote: OnBytes | None = None
    if progress is not None:
        report = progress

        def wrote(step: str, done: int, total: int | None) -> None:
            report(Progress(step, done, total, "bytes"))

    return await _interruptibly(
        lambda hold: backup_file(path, os.fspath(file), replace=replace, hold=hold, wrote=wrote)
    )


async def restore_store(file: str | os.PathLike[str], url: str, *, replace: bool = False) -> Restored:
    """Restore a backup, or a copy of a store's file, as the store at ``url``.

    The new store has the resources, the history and the checkpoints of the backup, but it has a new id and counts as
    another store. Every watch and cache therefore starts again from a snapshot. Its revisions and terms begin above
    all that the original can have used since the backup, so that writes based on earlier reads are rejected.

    Args:
        file: the backup.
        url: ``sqlite:PATH``. No process may have this store open.
        replace: replace an existing store, atomically. Its file is kept as ``PATH.replaced``.

    Raises:
        StoreUnusable: the file cannot be used, or a process has the store open.
        FailedPrecondition: a store already exists at ``url``.
        InvalidArgument: ``url`` is not the URL of a file.

    An error leaves an existing store as it was.
    """
    path = _path(url)
    return await _interruptibly(lambda hold: restore_file(os.fspath(file), path, replace=replace, hold=hold))


async def check_store(url: str) -> list[Finding]:
    """Read the whole store at ``url`` and return its problems, or an empty list if it is consistent.

    The check writes nothing, and a server may have the store open.

    Args:
        url: ``sqlite:PATH``. The file may be a backup.

    Raises:
        StoreUnusable: no store exists at ``url``.
        InvalidArgument: the store is not in a file.
    """
    return (await _checked(url)).findings


async def verify_file(url: str) -> Verified:
    """Verify a file without opening it as a store. Return its contents at one moment and its problems.

    Takes the same URLs as `check_store` and finds the same problems. If the file is too damaged to contain the store's
    id, ``position`` has none.
    """
    checked = await _checked(url)
    problems = list(map(str, checked.findings))
    if UNFINISHED_KIND in checked.resources:
        problems.append(UNFINISHED)
    return Verified(checked.position, checked.oldest, dict(checked.resources), problems)


def file_lists(url: str) -> ListsResources | None:
    """Return the resources in the file of a store without opening it. Return None if the store is not in a file."""
    parsed = parse_url(url)
    return None if parsed is None else FileLists(parsed.path)


async def _checked(url: str) -> Checked:
    return await trio.to_thread.run_sync(_check_file, _path(url))


def _check_file(path: str) -> Checked:
    real = os.path.realpath(path)
    refuse_unfinished(real)
    return check_file(real)


def _path(url: str) -> str:
    parsed = parse_url(url)
    if parsed is None:
        raise InvalidArgument(
            f'{without_password(url)!r} is not a store in a file; write "sqlite:PATH", like "sqlite:staff.db". '
            "A server has backups of its own; `headway store copy` copies its store into a file, and back"
        )
    return parsed.path


async def _interruptibly(work: Callable[[Hold], R]) -> R:
    """Do the work in a worker thread. Cancellation interrupts SQLite, and the work leaves no changes behind."""
    connections: list[sqlite3.Connection] = []

    async def interrupt_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            if connections:
                with suppress(sqlite3.ProgrammingError):  # The connection was closed a moment ago.
                    connections[-1].interrupt()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(interrupt_when_cancelled)
        result = await trio.to_thread.run_sync(outcome.capture, work, connections.append)
        nursery.cancel_scope.cancel()
    if isinstance(result, outcome.Error):
        # If the work was interrupted, raise Cancelled instead of SQLite's error.
        await trio.lowlevel.checkpoint_if_cancelled()
    return result.unwrap()
