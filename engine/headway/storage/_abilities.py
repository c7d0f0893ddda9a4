"""The optional abilities of stores, and the functions that use an ability where a store has it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, cast, runtime_checkable

from headway.resource import Bookmark, Key, Kind, Position, StreamItem, pb, resource_key
from headway.storage._backend import Backend
from headway.storage._operations import Fence, Within
from headway.storage._reads import ListedSnapshot, Snapshot
from headway.storage._rules import Rules

Read = Callable[[Kind, Key], Awaitable[tuple[pb.Resource | None, Position]]]
"""A function that reads like `Backend.read`."""


class Shared(Protocol):
    """A store that several engines may have open at once. `is_shared` looks for the attribute."""

    @property
    def shared(self) -> bool:
        """Always True."""
        ...


def is_shared(backend: Backend) -> bool:
    """Return True if other engines may have the same store open."""
    return bool(getattr(backend, "shared", False))


def last_leases(backend: Backend, *, lasting: bool) -> bool:
    """Set whether leases last until they are released, because only one process can acquire them.

    Return True if the store supports this setting. The stores of this package that only one process can open do.
    """
    last = getattr(backend, "last_leases", None)
    if last is not None:
        last(lasting=lasting)
    return last is not None


class FiltersMetadata(Protocol):
    """An optional ability of a store: its watches and lists filter by `Within.metadata`. `open_watch` looks for it."""

    filters_metadata: bool = True


def filters_metadata(backend: Backend) -> bool:
    """Return True if the store filters by metadata itself."""
    return bool(getattr(backend, "filters_metadata", False))


class ReadsCopies(Protocol):
    """A store whose every read decodes its resources again. It reads lists for the network in parts.

    An engine does not keep their bytes for the next list. `reads_copies`, `list_part` and `owned_parts` look for the
    attribute.
    """

    reads_copies: bool = True

    async def list_part(
        self, kind: Kind, within: Within, after: Key | None, limit: int
    ) -> tuple[Sequence[pb.Resource], Key | None, Position]:
        """Return the next resources like `Backend.list`, but no more than fit into a bounded amount of memory.

        One resource may take more. The key is the one behind which the next part begins, or None if nothing is left
        behind it. With ``within.metadata``, a part may be empty although others follow.
        """
        ...

    async def owned_parts(self, owner_uid: str) -> tuple[Snapshot, Position]:
        """Return the resources for `Backend.list_by_owner`, to be read in such parts, and their position."""
        ...


def reads_copies(backend: Backend) -> bool:
    """Return True if two reads of a store never return the same object."""
    return bool(getattr(backend, "reads_copies", False))


async def list_part(
    backend: Backend, kind: Kind, within: Within, after: Key | None, limit: int
) -> tuple[Sequence[pb.Resource], Key | None, Position]:
    """Return up to ``limit`` resources of a list, the key behind which to go on (None at the end), and a position.

    A store that decodes them for each reader may return fewer.
    """
    if reads_copies(backend):
        return await cast("ReadsCopies", backend).list_part(kind, within, after, limit)
    found, here = await backend.list(kind, within, after=after, limit=limit)
    return found, resource_key(found[-1]) if len(found) == limit else None, here


async def owned_parts(backend: Backend, owner_uid: str) -> tuple[Snapshot, Position]:
    """Return the resources that a uid owns, to be read in parts, and their position."""
    if reads_copies(backend):
        return await cast("ReadsCopies", backend).owned_parts(owner_uid)
    owned, here = await backend.list_by_owner(owner_uid)
    return ListedSnapshot([*owned]), here


@runtime_checkable
class SkipsUnrelated(Protocol):
    """An optional ability of a watch: skip the commits that change nothing of its part. WatchList looks for it.

    Most watchers follow a small part of a busy store. To wake each of them for every commit takes more than the commit.
    """

    async def next_change(self) -> StreamItem:
        """Return the next item like `Watch.next`. A bookmark comes only for a new session, or after changes.

        A canceled call has taken no item.
        """
        ...

    def poll(self) -> StreamItem | None:
        """Return the next item if there is one now. A bookmark reports the commits that `next_change` has skipped."""
        ...


@runtime_checkable
class Asked(SkipsUnrelated, Protocol):
    """An optional ability of a watch that skips commits: tell at once how far it is. Caches within the process use it.

    They would otherwise be woken for each commit, if only to learn that it changes nothing for them.
    """

    def ask(self, wanted: int = 0) -> Bookmark | None:
        """Return a bookmark for all commits, if a task waits in `next_change` and nothing else is to be returned first.

        If it is None or below the revision ``wanted``, `next_change` returns a bookmark once that revision is reached.
        """
        ...


class ReadsAtOnce(Protocol):
    """An optional ability of a store: read without a checkpoint. Writes look for the method."""

    def read_nowait(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position] | None:
        """Return the same as `Backend.read`, without a checkpoint. None if the read has to wait."""
        ...


class OptimisticReads(Protocol):
    """An optional ability of a store on a network: read its local state. A Write looks for the method.

    The commit that follows verifies the read: it requires every version that was read. If it is rejected, the Write
    reads again. An accepted commit was then based on current state. Any other decision may be out of date.
    """

    async def read_optimistic(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        """Return the same as `Backend.read`, but from the local state: the latest commits of others may be missing."""
        ...


class ListsFences(Protocol):
    """A store that can list its fences, so that it can be copied."""

    async def list_fences(self) -> Sequence[Fence]:
        """Return every stored fence, in order of controller and member."""
        ...


class CountsKinds(Protocol):
    """An optional ability of a store: count its resources without reading them. `copy_store` looks for the method."""

    async def count_kinds(self) -> Mapping[Kind, int]:
        """Return the number of resources of each kind that has any."""
        ...


class TakesRules(Protocol):
    """A store that takes rules of commits. `rules_of` looks for the attribute.

    It asks `rules` before each commit that concerns them, and lets them follow it, in the step or the transaction that
    makes the commit.
    """

    rules: Rules

    async def count_for_rules(self) -> None:
        """Let the rules count everything that is stored and not counted yet."""
        ...


def rules_of(backend: Backend) -> Rules | None:
    """Return the rules of a store, or None if it takes none."""
    rules: Rules | None = getattr(backend, "rules", None)
    return rules


class ChecksItself(Protocol):
    """A store that can check its integrity more thoroughly than its public methods allow."""

    async def check_itself(self) -> Sequence[str]:
        """Check the store without writing to it, and return one sentence for each problem."""
        ...


class Probed(Protocol):
    """A store with a check that it is usable, which shows more than a read does."""

    async def probe(self) -> None:
        """Raise an error if the store cannot be read or written now. Makes no revision."""
        ...
