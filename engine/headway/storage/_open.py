"""Opening a store by its url."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

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
    raise InvalidArgument(
        f'{url!r} names no store; known are "memory:", "sqlite:PATH", like "sqlite:staff.db", and '
        '"etcd://HOST:PORT,HOST:PORT/PREFIX", like "etcd://127.0.0.1:2379/staff"'
    )
