"""Access to the operating system for a server: listening sockets, file descriptors, and freed memory.

asyncio has listening sockets too, but it logs each connection that it cannot accept.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from headway.base import silence_in_forked_child
from headway.rpc._addresses import Address

Accepted = Callable[[socket.socket, object], None]

_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# The seconds until a listener tries again after the process ran out of descriptors or memory.
_PAUSE = 0.1
# The seconds to wait for the rest of a burst, and between two returns. A return takes 0.1 s if much memory is free.
_REST, _INTERVAL = 1.0, 10.0


async def bind(where: Address, backlog: int, *, share: bool = False) -> list[socket.socket]:
    """Listen on an address, and return the sockets. A host name may resolve to several addresses.

    With ``share``, other processes of the user may listen on the port too, if they also share it. A Unix socket cannot
    be shared.

    Raises:
        OSError: an address cannot be bound.
    """
    if where.path:
        return [_bind_unix(where.path, backlog)]
    found = await _resolved(where)
    listeners: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            listeners.append(_bind_tcp(family, kind, protocol, address, backlog, share=share))
    except OSError:
        for each in listeners:
            each.close()
        raise
    return listeners


async def _resolved(where: Address) -> list[Any]:
    """Return the socket addresses of a host and port to listen on."""
    try:
        return await trio.socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        text = f"cannot listen on {where.host}:{where.port}: {error.strerror or error}"
        raise socket.gaierror(error.errno, text) from error


def _bind_tcp(
    family: int, kind: int, protocol: int, address: tuple[object, ...], backlog: int | None, *, share: bool
) -> socket.socket:
    # With a protocol, as `socket.create_server` has none. asyncio turns off Nagle's algorithm only if it is TCP's.
    listener = socket.socket(family, kind, protocol)
    silence_in_forked_child(listener)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            # Treat 0.0.0.0 and [::] as two separate addresses.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        if backlog is not None:
            listener.listen(backlog)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen on {address[0]}:{address[1]}: {error.strerror}") from error
    return listener


async def reserve(where: Address) -> list[socket.socket]:
    """Keep a TCP address for processes that share its port (`bind`), and return the sockets, which do not listen.

    Raises:
        OSError: the address cannot be bound, or a server that is not one of these processes listens there.
    """
    # Another group of processes could share the port as well, and get half of the connections. Binding a socket that
    # does not share fails if another process listens already.
    for probe in await bind(where, 1) if where.port else ():
        probe.close()
    found = await _resolved(where)
    return [
        _bind_tcp(family, kind, protocol, address, None, share=True)
        for family, kind, protocol, _, address in dict.fromkeys(found)
    ]


def _bind_unix(path: str, backlog: int) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    silence_in_forked_child(listener)
    try:
        _remove_socket(path)
        listener.bind(path)
        listener.listen(backlog)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen on unix:{path}: {error.strerror or error}") from error
    return listener


def _remove_socket(path: str) -> None:
    """Remove the socket that an earlier process has left there. Any other file is kept.

    Raises:
        OSError: a process listens there, or that cannot be found out.
    """
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return
    except FileNotFoundError:
        return
    # Without this, its server would go on, and nobody could reach it.
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.remove(path)
            return
        except BlockingIOError:
            pass  # A process listens, and its queue is full.
    raise OSError(errno.EADDRINUSE, "another process listens there; end it, or choose another path")


async def accept(
    listener: socket.socket,
    accepted: Accepted,
    scarce: Callable[[OSError], None],
    caught_up: Callable[[], Awaitable[None]],
) -> None:
    """Call ``accepted`` with each new connection, until canceled.

    Call ``scarce`` with the error when descriptors or memory have run out. Await ``caught_up`` before accepting the
    next connection, because a loop that has not yet closed old connections must not get more.
    """
    while True:
        await trio.lowlevel.wait_readable(listener)
        try:
            connection, address = listener.accept()
        except OSError as error:
            # Any other error belongs to the connection, which was lost before it was accepted.
            if error.errno in _SCARCE:
                scarce(error)
                await trio.sleep(_PAUSE)
            continue
        connection.setblocking(False)
        accepted(connection, address)
        await caught_up()


def free_descriptors() -> int | None:
    """Return the number of descriptors available for connections, or None if it is unlimited."""
    limit = _limit()
    return None if limit is None else max(limit - _reserve(limit), 1)


def is_scarce(descriptor: int) -> bool:
    """Return True if a new descriptor with this number shows that few are left. The system assigns the lowest."""
    limit = _limit()
    return limit is not None and descriptor >= limit - _reserve(limit)


def _limit() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def _reserve(limit: int) -> int:
    """Return the number of descriptors to leave for stores, their servers and the program's own files."""
    return min(max(limit // 8, 32), 512, limit // 2)


class MemoryReturn:
    """A task that returns freed memory after a burst of connections, at most once in ten seconds.

    After a burst of small allocations, the C library would keep the memory.

    Args:
        worth: the number of freed bytes that makes a return worthwhile.
    """

    def __init__(self, worth: int) -> None:
        self._worth = worth
        self._freed = 0
        self._due = trio.Event()

    def freed(self, size: int) -> None:
        """Record that about ``size`` bytes have been freed."""
        self._freed += size
        if self._freed >= self._worth:
            self._due.set()

    async def run(self) -> None:
        """Return memory when it is due, until canceled."""
        trim = _trim()
        if trim is None:
            return
        while True:
            await self._due.wait()
            await trio.sleep(_REST)
            trim(0)
            self._freed, self._due = 0, trio.Event()
            await trio.sleep(_INTERVAL)


def _trim() -> Callable[[int], int] | None:
    """Return glibc's malloc_trim, or None with other C libraries, which don't have it."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None
    return trim
