"""The backlog of a run: the resources that existed when it began, as changes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from headway.cache import Applied
from headway.resource import Key, pb


class Backlog(Collection[Applied]):
    """The entries at one moment, as if all had just been created. Each `Applied` is created on demand."""

    __slots__ = ("_keys", "_resources")

    def __init__(self, entries: Mapping[Key, pb.Resource]) -> None:
        self._keys = list(entries)
        self._resources = list(entries.values())

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Applied]:
        # A call of the class would run a function of Python for every resource.
        new, of = tuple.__new__, Applied
        return (new(of, (key, None, each, 0)) for key, each in zip(self._keys, self._resources, strict=True))

    def __contains__(self, applied: object) -> bool:
        return any(applied == each for each in self)
