"""Lists of a store's file without opening the store: a server may have it open, and nothing is written."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import partial

import trio

from headway.errors import StoreUnusable
from headway.resource import Key, Kind, Position, pb
from headway.storage import _sqlite_schema as sql
from headway.storage._backend import ListsResources
from headway.storage._operations import Within
from headway.storage._sqlite_connect import explained
from headway.storage._sqlite_inspect import open_to_read
from headway.storage._sqlite_migrate import format_of
from headway.storage._sqlite_reader import Rows, decode_rows, read_many


class FileLists:
    """A `ListsResources` on the file, or the backup, at ``path``.

    Every list is a consistent snapshot. Raises StoreUnusable if the store does not exist or has an earlier format.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)

    async def list(
        self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0
    ) -> tuple[Sequence[pb.Resource], Position]:
        """Return resources of a kind, ordered by key, and their position, which has no store id."""
        read = partial(self._read, kind, within, after, limit)
        rows, revision = await trio.to_thread.run_sync(read)
        return await decode_rows(rows), Position("", "", revision)

    def _read(self, kind: Kind, within: Within, after: Key | None, limit: int) -> tuple[Rows, int]:
        try:
            with closing(open_to_read(self._path, backup=True)) as connection:
                if (found := format_of(connection)) < sql.FORMAT:
                    raise StoreUnusable(
                        f"{self._path} has format {found}, expected {sql.FORMAT}: "
                        "open it with this Headway to upgrade it, and then read it"
                    )
                connection.execute("BEGIN")
                return read_many(connection, kind, within, after=after, limit=limit)
        except sqlite3.Error as error:
            raise StoreUnusable(f"{self._path} cannot be read: {explained(error)}") from error


def _meets_the_protocol() -> ListsResources:
    return FileLists("")
