"""Open a store by its URL, and find out if an open store can be served.

A store that is the target of an unfinished copy has a mark, and must not be served until the copy is complete.
Controllers would take the missing resources for deleted ones, and act on that.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import trio

from headway.base import without_password
from headway.errors import HeadwayError, InvalidArgument, StoreUnusable
from headway.resource import Key, Kind, pb
from headway.storage._backend import Backend
from headway.storage._memory import MemoryBackend
from headway.storage._operations import Put, Remove

_POSTGRES = ("postgresql:", "postgres:")


def names_shared(url: str) -> bool:
    """Return True if several processes may have the store at this URL open at once."""
    return url.startswith(("etcd:", *_POSTGRES))


def open_store(url: str) -> AbstractAsyncContextManager[Backend]:
    """Return the store at ``url``, an async context manager. Entering it opens the store.

    The URL is ``memory:``, ``sqlite:PATH`` with a relative or an absolute path,
    ``etcd://HOST:PORT,HOST:PORT/PREFIX``, or ``postgresql://USER@HOST/DATABASE?schema=NAME``. It may set how much
    history is kept: ``sqlite:PATH?max_changes=100000&max_age=3600&max_bytes=268435456``.

    Raises:
        InvalidArgument: the URL has another form.
        DeclarationError: the extra that the store needs is not installed.
        StoreUnusable: on entering, the store cannot be opened.
        Unavailable: on entering, the store's servers cannot be reached.
    """
    if url == "memory:":
        return MemoryBackend()
    # Each store is imported only when it is used. An engine with another store needs none of its libraries.
    if url.startswith("sqlite:"):
        from headway.storage.sqlite import SqliteBackend, parse_url

        if (sqlite := parse_url(url)) is not None:
            return SqliteBackend(
                sqlite.path, max_changes=sqlite.max_changes, max_age=sqlite.max_age, max_bytes=sqlite.max_bytes
            )
    if url.startswith("etcd:"):
        from headway.storage.etcd import EtcdBackend

        return EtcdBackend(url)
    if url.startswith(_POSTGRES):
        from headway.storage.postgres import PostgresBackend

        return PostgresBackend(url)
    raise _no_url(url)


async def store_exists(url: str) -> bool:
    """Return True if a store exists at ``url``. Unlike opening a store, this creates nothing.

    Raises:
        InvalidArgument: `open_store` does not accept the URL.
        Unavailable: the store's servers cannot be reached.
        StoreUnusable: the store's servers cannot answer, or this process may not look at the store's file.
    """
    if url == "memory:":
        return False
    if url.startswith("sqlite:"):
        from headway.storage.sqlite import parse_url

        if (sqlite := parse_url(url)) is not None:
            # An empty file is not a store yet. Another file may not be one either: opening it reports that.
            try:
                return (await trio.Path(sqlite.path).stat()).st_size > 0
            except (FileNotFoundError, NotADirectoryError):
                return False
            except OSError as error:
                raise StoreUnusable(
                    f"{sqlite.path} cannot be read ({error.strerror}): give this process permission to read it, "
                    "or give another path"
                ) from error
    if url.startswith("etcd:"):
        from headway.storage.etcd import etcd_address, is_founded

        return await is_founded(etcd_address(url))
    if url.startswith(_POSTGRES):
        from headway.storage.postgres import postgres_address, store_is_there

        return await store_is_there(postgres_address(url))
    raise _no_url(url)


def _no_url(url: str) -> InvalidArgument:
    return InvalidArgument(
        f'{without_password(url)!r} is not a store URL; expected "memory:", "sqlite:PATH", like "sqlite:staff.db", '
        '"etcd://HOST:PORT,HOST:PORT/PREFIX", like "etcd://127.0.0.1:2379/staff", or '
        '"postgresql://USER@HOST/DATABASE", like "postgresql://staff@10.0.0.1/staff"'
    )


_NOTHING = ("internal", "Nothing"), ("", "", "nothing")


class StoreProblem(enum.Enum):
    """A reason why a store can't be used. The value is a sentence that names neither a path nor an address."""

    UNUSABLE = "the store can't be used until it is opened again"
    AWAY = "the store does not answer, or accepts no writes"
    ROLLED_BACK = "the store was rolled back: an operator has to accept it, for example by restarting this process"

    @property
    def mended_by_reopening(self) -> bool:
        """True if restarting the process may help. It never helps with other problems, and it may lose information."""
        return self is StoreProblem.UNUSABLE


async def find_problem(backend: Backend) -> tuple[StoreProblem, Exception] | None:
    """Return the problem of an open store, and the error that shows it. Return None if it can be read and written."""
    try:
        backend.position  # noqa: B018  # raises if the store rejects every call
        probe: Callable[[], Awaitable[None]] | None = getattr(backend, "probe", None)
        if probe is None:
            await backend.read(*_NOTHING)
        else:
            await probe()
    except Exception as error:  # noqa: BLE001  # a store of one's own may raise those of the library that it uses
        return (StoreProblem.UNUSABLE if _refuses_everything(backend) else StoreProblem.AWAY), error
    return None


def _refuses_everything(backend: Backend) -> bool:
    try:
        backend.position  # noqa: B018
    except Exception as error:  # noqa: BLE001  # as above
        return isinstance(error, HeadwayError)
    return False


UNFINISHED_KIND: Kind = ("internal", "UnfinishedCopy")
UNFINISHED = "a copy into this store was not finished: run the same copy again"
_KEY: Key = ("", "", "unfinished-copy")
_SOURCE = "from-store"


async def source_of(backend: Backend) -> str | None:
    """Return the id of the source of an unfinished copy into this store, or None if there is no such copy."""
    found, _ = await backend.read(UNFINISHED_KIND, _KEY)
    return None if found is None else found.metadata.get(_SOURCE, "")


async def refuse_unfinished(backend: Backend) -> None:
    """Raise StoreUnusable if a copy into the store was not finished."""
    if (source := await source_of(backend)) is not None:
        raise StoreUnusable(
            f"a copy of store {source} into this one was not finished, so this store is incomplete: "
            "run the same `headway store copy` again"
        )


async def mark_unfinished(backend: Backend, source: str) -> None:
    """Mark an empty store as the target of a copy from ``source``."""
    type = pb.Type(group=UNFINISHED_KIND[0], group_version="v1", kind=UNFINISHED_KIND[1])
    id = pb.Id(uid=uuid.uuid4().hex, name=_KEY[2], type=type, tenancy=pb.Tenancy(partition=_KEY[0], namespace=_KEY[1]))
    await backend.commit([Put(UNFINISHED_KIND, _KEY, pb.Resource(id=id, metadata={_SOURCE: source}), "")])


async def unmark(backend: Backend) -> None:
    """Remove the mark, once the copy is complete."""
    found, _ = await backend.read(UNFINISHED_KIND, _KEY)
    if found is not None and found.id is not None:
        await backend.commit([Remove(UNFINISHED_KIND, _KEY, found.id.uid, found.version)])
