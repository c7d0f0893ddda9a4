"""The history of a file: what of it a commit log begins with, and its pages for watchers that need older changes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import groupby

from headway.errors import HistoryCompacted, StoreUnusable
from headway.resource import Change, Kind, pb
from headway.storage._filter import ending_commits
from headway.storage._kept import Bounds, KeptCommits, Page, too_far_behind
from headway.storage._log import NO_FORMERS, CommitLog, LogChange
from headway.storage.sqlite import _schema as sql
from headway.storage.sqlite._connect import code_of, explained
from headway.storage.sqlite._reader import PAGE_BYTES, read_head
from headway.storage.sqlite._rows import resource_from

IN_MEMORY = 16 * 2**20
"""The maximum number of bytes of changes in the commit log: some ten thousand changes of small resources."""

PAGE_CHANGES = 1000
"""The number of changes at about which a page ends. A commit may have more."""


def read_history(
    connection: sqlite3.Connection, floor: int, formers_floor: int, bounds: Bounds, clock: tuple[float, float]
) -> tuple[KeptCommits, CommitLog]:
    """Return the kept commits of a file, and a commit log with the newest of them.

    An earlier program may have kept more, and a store may have been closed for long.

    Args:
        clock: now, by the log's clock and by the wall clock.
    """
    now, wall = clock
    kept = KeptCommits(floor, bounds)
    for revision, count, time, size in connection.execute(sql.SIZES_OF_HISTORY, (floor,)):
        # A damaged row may have no body. It is found when it is read.
        kept.append(revision, count, now - max(0.0, wall - time), size or 0)
    kept.trim(now)
    most = min(bounds.max_bytes, IN_MEMORY)
    begin = kept.floor_of_newest(most)
    formers: dict[int, dict[int, pb.Resource]] = {}
    for revision, seq, *row in connection.execute(sql.READ_FORMERS, (begin,)):
        try:
            formers.setdefault(revision, {})[seq] = resource_from(*row)
        except StoreUnusable:
            formers_floor = max(formers_floor, revision)
    commits: list[tuple[int, list[LogChange], float]] = []
    for revision, group in groupby(connection.execute(sql.READ_HISTORY, (begin,)), key=lambda row: row[0]):
        rows = list(group)
        try:
            commits.append((revision, list(_changes(rows)), now - max(0.0, wall - rows[0][5])))
        except StoreUnusable:
            # Drop a damaged commit and everything before it, as if it were too old: a watcher from before it takes a
            # new snapshot, and misses nothing.
            commits, begin = [], revision
            kept.compact(revision)
    log = CommitLog(begin, max_changes=bounds.max_changes, max_age=bounds.max_age, max_bytes=most)
    log.formers_after = max(kept.floor, formers_floor)
    for revision, changes, at in commits:
        log.append(revision, changes, at, formers.get(revision, NO_FORMERS))
    head = read_head(connection)
    if head > log.head:
        # The last revisions may belong to fences, which have no changes and no rows.
        log.append(head, (), now)
    return kept, log


def _changes(rows: Sequence[tuple[int, str, str, int, int, float, int, bytes]]) -> Iterator[LogChange]:
    for _, group, kind, deleted, version, _, sealed, body in rows:
        yield (group, kind), resource_from(version, sealed, body), bool(deleted)


def read_page(connection: sqlite3.Connection, kind: Kind, after: int, through: int, *, formers: bool) -> Page:
    """Return the changes of a kind after a revision, in whole commits, up to ``through``.

    Raises:
        HistoryCompacted: some of the changes are no longer kept, or damaged.
    """
    (floor,) = connection.execute(sql.READ_FLOOR).fetchone()
    if after < floor:
        raise too_far_behind(kind, after, floor)
    page = Page([], {}, through)
    size = 0
    try:
        for revision, deleted, version, sealed, body, *former in connection.execute(
            sql.READ_CHANGES, (after, through, *kind)
        ):
            if (len(page.changes) >= PAGE_CHANGES or size >= PAGE_BYTES) and revision > page.changes[-1].revision:
                page = page._replace(through=page.changes[-1].revision)
                break
            if formers and former[0] is not None:
                page.formers[len(page.changes)] = resource_from(*former)
            page.changes.append(Change(revision, resource_from(version, sealed, body), bool(deleted), False))
            size += len(body)
    except StoreUnusable as error:
        raise _unreadable(kind, after, error) from error
    except sqlite3.DatabaseError as error:
        if code_of(error) & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        raise _unreadable(kind, after, explained(error)) from error
    ending_commits(page.changes)
    return page


def _unreadable(kind: Kind, after: int, why: object) -> HistoryCompacted:
    return HistoryCompacted(f"the history of {'.'.join(kind)} after revision {after} cannot be read: {why}")
