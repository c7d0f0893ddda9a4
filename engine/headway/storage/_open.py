"""Open a store by its URL, or check if it exists."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import trio

from headway.errors import InvalidArgument
from headway.storage._backend import Backend
from headway.storage._memory import MemoryBackend
from headway.storage._sqlite_url import parse_url


def open_store(url: str) -> AbstractAsyncContextManager[Backend]:
    """Return the store at ``url``, an async context manager. Entering it opens the store.

    The URL is ``memory:``, ``sqlite:PATH`` with a relative or an absolute path, or
    ``etcd://HOST:PORT,HOST:PORT/PREFIX``. It may set how much history is kept:
    ``sqlite:PATH?max_changes=100000&max_age=3600``.

    Raises:
        InvalidArgument: the URL has another form.
        StoreUnusable: on entering, the store cannot be opened.
        Unavailable: on entering, the store's servers cannot be reached.
    """
    scheme, colon, path = url.partition(":")
    if colon and scheme == "memory" and not path:
        return MemoryBackend()
    # Each store is imported only when it is used. An engine with another store needs none of its libraries.
    if (sqlite := parse_url(url)) is not None:
        from headway.storage._sqlite import SqliteBackend

        return SqliteBackend(sqlite.path, max_changes=sqlite.max_changes, max_age=sqlite.max_age)
    if colon and scheme == "etcd":
        from headway.storage.etcd import EtcdBackend

        return EtcdBackend(url)
    raise _no_url(url)


async def store_exists(url: str) -> bool:
    """Return True if a store exists at ``url``. Unlike opening a store, this creates nothing.

    Raises:
        InvalidArgument: `open_store` does not accept the URL.
        Unavailable: the store's servers cannot be reached.
        StoreUnusable: the store's servers cannot answer.
    """
    scheme, colon, path = url.partition(":")
    if colon and scheme == "memory" and not path:
        return False
    if (sqlite := parse_url(url)) is not None:
        # An empty file is not a store yet. Another file may not be one either: opening it reports that.
        file = trio.Path(sqlite.path)
        return await file.exists() and (await file.stat()).st_size > 0
    if colon and scheme == "etcd":
        from headway.storage.etcd import etcd_address, is_founded

        return await is_founded(etcd_address(url))
    raise _no_url(url)


def _no_url(url: str) -> InvalidArgument:
    return InvalidArgument(
        f'{url!r} is not a store URL; expected "memory:", "sqlite:PATH", like "sqlite:staff.db", or '
        '"etcd://HOST:PORT,HOST:PORT/PREFIX", like "etcd://127.0.0.1:2379/staff"'
    )
