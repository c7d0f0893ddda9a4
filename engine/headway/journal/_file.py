"""The journal in a file: one JSON object a line, written by a task within a second, and rotated.

The file shows what happened before a crash. It never delays the program: while the disk is slow, entries wait in
a bounded buffer, and are dropped and counted when that is full.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import trio

from headway.base import OWNER_ONLY, say
from headway.journal._entries import Entry, Happened, Ran, TurnedAway

FILE_BYTES = 16 << 20
"""The size at which the file is renamed and a new one is begun."""
BUFFER = 20_000
"""The number of entries that wait for the disk."""
INTERVAL = 0.5
_LAST = 2.0


class JournalFile:
    """The file of a journal. Give `put` to a `Journal` as its sink, and start `run` in a nursery.

    Args:
        path: the path of the file. It is appended to.
        wall: returns the seconds since 1970 for a time on the journal's clock.
        limit: the size at which the file is rotated, in bytes.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(
        self, path: str | os.PathLike[str], wall: Callable[[float], float], *, limit: int = FILE_BYTES
    ) -> None:
        # The program may change its directory later. Links are not resolved.
        self.path = os.path.abspath(path)
        self._wall = wall
        self._limit = limit
        self._waiting: deque[tuple[str, Entry]] = deque()
        self._lost = 0
        self._arrived = trio.Event()
        self._failed = False
        # Opened here, so that a wrong path is an error at the start.
        with open(self.path, "ab", opener=_open):
            pass

    def put(self, controller: str, entry: Entry) -> None:
        """Add an entry to the buffer."""
        if len(self._waiting) >= BUFFER:
            self._lost += 1
            return
        self._waiting.append((controller, entry))
        if not self._arrived.is_set():
            self._arrived.set()

    async def run(self) -> NoReturn:
        """Write the entries as they arrive, until canceled. Call `finish` afterwards."""
        while True:
            await self._arrived.wait()
            await self._write()
            # So that many entries share a write.
            await trio.sleep(INTERVAL)

    async def finish(self) -> None:
        """Write the entries that are left, even if the caller is canceled. It takes at most two seconds."""
        with trio.move_on_after(_LAST, shield=True):
            await self._write()

    async def _write(self) -> None:
        self._arrived = trio.Event()
        entries, self._waiting = self._waiting, deque()
        lost, self._lost = self._lost, 0
        if not entries and not lost:
            return
        try:
            await trio.to_thread.run_sync(self._append, entries, lost, abandon_on_cancel=True)
        except OSError as error:
            self._lost += lost + len(entries)
            if not self._failed:
                self._failed = True
                say(f"headway: the journal {self.path} cannot be written; the engine continues: {error}\n")

    def _append(self, entries: Iterable[tuple[str, Entry]], lost: int) -> None:
        objects = [as_object(controller, entry, self._wall) for controller, entry in entries]
        if lost:
            objects.append({"what": "lost", "lines": lost})
        data = "".join(f"{_line(each)}\n" for each in objects).encode()
        if os.path.isfile(self.path):
            if _is_torn(self.path):
                data = b"\n" + data
            if os.path.getsize(self.path) + len(data) > self._limit:
                os.replace(self.path, f"{self.path}.1")
                data = data.lstrip(b"\n")
        with open(self.path, "ab", opener=_open) as file:
            file.write(data)


def _is_torn(path: str) -> bool:
    """Return True if the last line of a file has no end, because a crash or a full disk has cut it off."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        # An empty file has no last byte, and a file that only collects lines may not be readable.
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
    return False


def _open(path: str, flags: int) -> int:
    """Open a file that only its owner may read if it is new. A pipe without a reader is an error, and never blocks."""
    # Errors and tracebacks may quote payloads, and a store is for its owner alone, too.
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), OWNER_ONLY)
    if os.name == "posix":
        os.set_blocking(descriptor, True)
    return descriptor


def _line(value: dict[str, Any]) -> str:
    """Return JSON without characters that end a line, or that a terminal would obey."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def as_object(controller: str, entry: Entry, wall: Callable[[float], float]) -> dict[str, Any]:
    """Return an entry as a JSON object. Types, keys and reasons are texts."""
    made: dict[str, Any] = {"at": round(wall(entry.at), 6)}
    if isinstance(entry, Happened):
        made |= {"what": entry.what, "controller": controller} | entry.fields
    else:
        what = "ran" if isinstance(entry, Ran) else "turned away" if isinstance(entry, TurnedAway) else "written"
        made["what"] = what
        if what != "written":
            made["controller"] = controller
        made |= {name: value for name, value in entry._asdict().items() if name != "at"}
    if isinstance(entry, Ran):
        made["reads"] = [read_text(each) for each in entry.reads]
        made["reasons"] = [reason_text(each) for each in entry.reasons]
    return {name: _plain(value) for name, value in made.items()}


def read_text(read: tuple[Any, ...]) -> str:
    """Return a read of a reconcile as text, such as ``Team core at version 7`` or ``Account by index lead``."""
    type, what = read
    if not isinstance(what, tuple):
        return f"{type.kind} by {what}"
    return f"{type.kind} {key_text(what[:3])}" + "".join(f" at version {version}" for version in what[3:])


def reason_text(reason: tuple[Any, ...]) -> str:
    """Return a reason of a reconcile as text, such as ``Team core changed at 7``."""
    what, type, key, revision = reason
    return what if type is None or key is None else f"{type.kind} {key_text(key)} {what} at {revision}"


def key_text(key: tuple[str, ...]) -> str:
    """Return a key as text, without its default units."""
    partition, namespace, name = key
    if partition not in ("", "default"):
        return "/".join(filter(None, (partition, namespace, name)))
    return name if namespace in ("", "default") else f"{namespace}/{name}"


def _plain(value: Any) -> Any:
    if value is None or type(value) in (str, int, float, bool):
        return value
    if type(value) is tuple or isinstance(value, list):
        # A key consists of texts only.
        if len(value) == 3 and type(value) is tuple and all(isinstance(each, str) for each in value):
            return key_text(value)
        return [_plain(each) for each in value]
    return str(value)
