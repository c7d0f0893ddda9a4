"""Opening a store by its url, and whether there is one."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import trio

from headway.errors import InvalidArgument
from headway.storage._backend import Backend
from headway.storage._memory import MemoryBackend
from headway.storage._sqlite_url import parse_url


def open_store(url: str) -> AbstractAsyncContextManager[Backend]:
    """The store at ``url``, to be entered: ``memory:``, ``sqlite:PATH`` with a relative or an absolute path, or
    ``etcd://HOST:PORT,HOST:PORT/PREFIX``.

    What is kept of its history may be said there: ``sqlite:PATH?max_changes=100000&max_age=3600``.

    Raises InvalidArgument for another url; entering it raises StoreUnusable when the store can't be opened, and
    Unavailable when its servers can't be reached.
    """
    scheme, colon, path = url.partition(":")
    if colon and scheme == "memory" and not path:
        return MemoryBackend()
    # Each is loaded when it is asked for: an engine on another store does without its libraries.
    if (sqlite := parse_url(url)) is not None:
        from headway.storage._sqlite import SqliteBackend

        return SqliteBackend(sqlite.path, max_changes=sqlite.max_changes, max_age=sqlite.max_age)
    if colon and scheme == "etcd":
        from headway.storage._etcd import EtcdBackend

        return EtcdBackend(url)
    raise _no_url(url)


async def store_exists(url: str) -> bool:
    """Whether there is a store at ``url``, which opening it would make. Nothing is made or changed.

    Raises InvalidArgument for what `open_store` takes for no url, Unavailable when its servers can't be reached, and
    StoreUnusable when they can't be asked.
    """
    scheme, colon, path = url.partition(":")
    if colon and scheme == "memory" and not path:
        return False
    if (sqlite := parse_url(url)) is not None:
        # An empty file is none yet. What isn't empty may be something else: opening it says so.
        file = trio.Path(sqlite.path)
        return await file.exists() and (await file.stat()).st_size > 0
    if colon and scheme == "etcd":
        from headway.storage._etcd import etcd_address, is_founded

        return await is_founded(etcd_address(url))
    raise _no_url(url)


def _no_url(url: str) -> InvalidArgument:
    return InvalidArgument(
        f'{url!r} names no store; known are "memory:", "sqlite:PATH", like "sqlite:staff.db", and '
        '"etcd://HOST:PORT,HOST:PORT/PREFIX", like "etcd://127.0.0.1:2379/staff"'
    )
