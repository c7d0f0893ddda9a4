"""The history in the tables: what a follower reads of it, and its pages for watchers that need older changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import trio

from headway.errors import HistoryCompacted, StoreUnusable
from headway.resource import Change, Kind, decode_resource, pb
from headway.storage._filter import ending_commits
from headway.storage._kept import Page, too_far_behind
from headway.storage._log import LogChange
from headway.storage.postgres import _schema as sql
from headway.storage.postgres._connection import Pool, only
from headway.storage.postgres._requests import Logged

IN_MEMORY = 16 * 2**20
"""The maximum number of bytes of changes in the commit log."""

PAGE_CHANGES = 1000
"""The number of changes at about which a page ends. A commit may have more."""


class LoggedCommit(NamedTuple):
    """A commit, as its rows in the history have it.

    Attributes:
        revision: its revision.
        changes: its changes.
        formers: the states before changes of metadata, by the index of the change.
        at: when it was made, by the clock of the process.
        size: the bytes of its rows.
    """

    revision: int
    changes: list[LogChange]
    formers: dict[int, pb.Resource]
    at: float
    size: int


def resource_from(version: int, body: bytes) -> pb.Resource:
    """Return a stored resource. Raises StoreUnusable if it cannot be read."""
    try:
        resource = decode_resource(body)
    except Exception as error:
        raise StoreUnusable(f"the resource stored at revision {version} is damaged: {error}") from error
    resource.version = str(version)
    return resource


def commits_from(rows: Sequence[tuple[Any, ...]]) -> Iterator[LoggedCommit]:
    """Return the commits of rows of the history, in order."""
    now = trio.current_time()
    for revision, group in groupby(rows, key=lambda row: row[0]):
        commit = LoggedCommit(revision, [], {}, now, 0)
        for _, type_group, kind, deleted, version, _, _, body, former_version, former, age in group:
            if former is not None:
                commit.formers[len(commit.changes)] = resource_from(former_version, former)
            commit.changes.append(((type_group, kind), resource_from(version, body), deleted))
            commit = commit._replace(at=now - max(age, 0.0), size=commit.size + len(body) + len(former or b""))
        yield commit


def commits_of(changes: Sequence[Logged], at: float) -> list[LoggedCommit] | None:
    """Return the commits of changes that were stored. None if the states before some of them have to be read."""
    commits: list[LoggedCommit] = []
    for revision, group in groupby(changes, key=lambda each: each.revision):
        made: list[LogChange] = []
        size = 0
        for each in group:
            if each.put is None or each.keeps_former:
                return None
            made.append((each.place[0], each.put.resource, False))
            size += len(each.put.body)
        commits.append(LoggedCommit(revision, made, {}, at, size))
    return commits


def is_cut(most: int, bodies: Sequence[tuple[bytes, bytes | None]]) -> bool:
    """Return True if an answer with these bodies, and states before, has reached a bound: there may be more."""
    return len(bodies) >= most or sum([len(body) + len(former or b"") for body, former in bodies]) >= sql.ANSWER_BYTES


async def read_page(readers: Pool, s: sql.Statements, kind: Kind, after: int, through: int, *, formers: bool) -> Page:
    """Return the changes of a kind after a revision, in whole commits, up to ``through``.

    Raises:
        HistoryCompacted: some of the changes are no longer kept.
    """
    asked = {
        "after": after,
        "through": through,
        "group": kind[0],
        "kind": kind[1],
        "most": PAGE_CHANGES,
        "bytes": sql.ANSWER_BYTES,
    }
    _, stores, rows, _ = await readers.ask((sql.BEGIN_READ, {}), (s.floor, {}), (s.page, asked), (sql.COMMIT, {}))
    [floor] = only(stores)
    if after < floor:
        raise too_far_behind(kind, after, floor)
    page = Page([], {}, through)
    try:
        for revision, deleted, version, body, former_version, former in rows:
            if formers and former is not None:
                page.formers[len(page.changes)] = resource_from(former_version, former)
            page.changes.append(Change(revision, resource_from(version, body), deleted, False))
    except StoreUnusable as error:
        raise HistoryCompacted(
            f"the history of {'.'.join(kind)} after revision {after} cannot be read: {error}"
        ) from error
    if is_cut(PAGE_CHANGES, [(row[3], row[5]) for row in rows]):
        page = page._replace(through=rows[-1][0])
    ending_commits(page.changes)
    return page
