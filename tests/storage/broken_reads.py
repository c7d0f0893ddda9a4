"""Stores whose reads and lists each break one promise, so that the conformance checks must fail."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from headway.protobuf import copy_message
from headway.resource import Key, Kind, Position, pb, resource_key
from headway.storage import Cursor, LogWatch, Within
from headway.testing.conformance import concurrency, grammar, watches
from headway.testing.conformance import reads as claims
from tests.storage.kept_memory import Applied, Broken, Found, KeptMemory, ListSnapshot


class ReadsALaggingReplica(KeptMemory):
    """Reads and lists return the state before the last commit, at that commit's revision."""

    def __init__(self, *, max_changes: int = 100_000) -> None:
        super().__init__(max_changes=max_changes)
        self._behind: tuple[dict[Kind, dict[Key, pb.Resource]], Position] = ({}, self.position)

    def publish(self, applied: Sequence[Applied]) -> None:
        tables = {kind: dict(table) for kind, table in self.tables.items()}
        self._behind = (tables, self.position)
        super().publish(applied)

    async def read(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        await trio.lowlevel.checkpoint()
        tables, at = self._behind
        return tables.get(kind, {}).get(key), at


class ListsALaggingReplica(ReadsALaggingReplica):
    async def read(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        return await KeptMemory.read(self, kind, key)

    async def list(self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0) -> Found:
        await trio.lowlevel.checkpoint()
        tables, at = self._behind
        table = tables.get(kind, {})
        keys = [key for key in sorted(table) if within.matches(key) and (after is None or key > after)]
        return [table[key] for key in (keys[:limit] if limit else keys)], at


class IgnoresTenancyInReads(KeptMemory):
    def read_nowait(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        table = self.tables.get(kind, {})
        return next((table[each] for each in table if each[2] == key[2]), None), self.position


class ListsInOrderOfWriting(KeptMemory):
    async def list(self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0) -> Found:
        found, at = await super().list(kind, within, after=after, limit=limit)
        return sorted(found, key=lambda each: int(each.version)), at


class TakesPrefixesForPatterns(KeptMemory):
    async def list(self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0) -> Found:
        within = within._replace(name_prefix=within.name_prefix.rstrip("%_*"))
        return await super().list(kind, within, after=after, limit=limit)


class BeginsAPageAtItsKey(KeptMemory):
    async def list(self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0) -> Found:
        if after is not None:
            after = (*after[:2], after[2][:-1])
        return await super().list(kind, within, after=after, limit=limit)


class SkipsOneBetweenPages(KeptMemory):
    async def list(self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0) -> Found:
        found, at = await super().list(kind, within, after=after, limit=limit + 1 if limit and after else limit)
        return (found[1:] if limit and after and len(found) > limit else found[: limit or None]), at


class CountsPagesByNumber(KeptMemory):
    """A page begins at a count of resources, so creations and deletions between two pages shift it."""

    def __init__(self, *, max_changes: int = 100_000) -> None:
        super().__init__(max_changes=max_changes)
        self._counted: dict[Key, int] = {}

    async def list(self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0) -> Found:
        begin = 0 if after is None else self._counted.get(after, 0)
        found, at = await super().list(kind, within)
        page = found[begin : begin + limit] if limit else found[begin:]
        if page:
            self._counted[resource_key(page[-1])] = begin + len(page)
        return page, at


class SnapshotsOfAllNamespaces(KeptMemory):
    def tail(self, kind: Kind, within: Within, after: int, snapshot: ListSnapshot | None) -> LogWatch:
        if snapshot is not None:
            table = self.tables.get(kind, {})
            wider = within._replace(namespace="*")
            snapshot = ListSnapshot([each for key, each in table.items() if wider.matches(key)])
        return super().tail(kind, within, after, snapshot)


class TailsOfAllNames(KeptMemory):
    def tail(self, kind: Kind, within: Within, after: int, snapshot: ListSnapshot | None) -> LogWatch:
        return super().tail(kind, within._replace(name_prefix=""), after, snapshot)


class KeepsEmptyKinds(KeptMemory):
    async def kinds(self) -> Sequence[Kind]:
        await trio.lowlevel.checkpoint()
        return sorted(self.tables)


class OwnsByTheBeginningOfAUid(KeptMemory):
    async def list_by_owner(self, owner_uid: str) -> Found:
        await trio.lowlevel.checkpoint()
        owned = [each for uid, table in self.owned.items() if uid.startswith(owner_uid) for each in table.values()]
        return owned, self.position


class ForgetsResourcesOfADeletedOwner(KeptMemory):
    def publish(self, applied: Sequence[Applied]) -> None:
        super().publish(applied)
        for _, _, old, new in applied:
            if old is not None and new is None and old.id is not None:
                self.owned.pop(old.id.uid, None)


class LosesOwnersByAnUpdate(KeptMemory):
    def index(self, kind: Kind, key: Key, old: pb.Resource | None, new: pb.Resource | None) -> None:
        if old is not None and old.owner is not None and (kind, key) not in self.owned.get(old.owner.uid, {}):
            old = None
        super().index(kind, key, old, new if old is None else None)


class ReadsThenTakesItsPosition(KeptMemory):
    async def read(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        found, _ = await super().read(kind, key)
        await trio.lowlevel.checkpoint()
        return found, self.position


class ListsOneKeyAfterTheOther(KeptMemory):
    async def list(self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0) -> Found:
        found: list[pb.Resource] = []
        for each in (await super().list(kind, within, after=after, limit=limit))[0]:
            await trio.lowlevel.checkpoint()
            now = self.tables[kind].get(resource_key(each))
            if now is not None:
                found.append(now)
        return found, self.position


class ListsWithoutStatus(KeptMemory):
    async def list(self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0) -> Found:
        found, at = await super().list(kind, within, after=after, limit=limit)
        shown = [copy_message(each) for each in found]
        for each in shown:
            each.status = {}
        return shown, at


class SnapshotsPieceByPiece(KeptMemory):
    """The later pieces of a large snapshot are read only when the reader asks for them."""

    def tail(self, kind: Kind, within: Within, after: int, snapshot: ListSnapshot | None) -> LogWatch:
        if snapshot is not None:
            snapshot = _LaterPieces(self.tables.get(kind, {}), within)
        return super().tail(kind, within, after, snapshot)


class _LaterPieces(ListSnapshot):
    def __init__(self, table: dict[Key, pb.Resource], within: Within) -> None:
        super().__init__(())
        self._table = table
        self._keys = [key for key in sorted(table) if within.matches(key)]

    async def next(self) -> list[pb.Resource]:
        piece, self._keys = self._keys[:500], self._keys[500:]
        return [self._table[key] for key in piece if key in self._table]


class SnapshotsThenFindsItsTail(KeptMemory):
    """A commit between a snapshot and the start of its tail is lost."""

    async def watch(self, kind: Kind, within: Within, resume_after: Position | None = None) -> LogWatch:
        made = await super().watch(kind, within, resume_after)
        if resume_after is None:
            await trio.lowlevel.checkpoint()
            made._cursor = Cursor(made._cursor.log, 0, self._log.head)
            made._announced = self._log.head
        return made


class TailsBeginBeforeTheSnapshot(KeptMemory):
    """The tail repeats changes that the snapshot already has, as a lagging event queue would."""

    def tail(self, kind: Kind, within: Within, after: int, snapshot: ListSnapshot | None) -> LogWatch:
        if snapshot is not None:
            after = max(after - 3, self._log.floor)
        return super().tail(kind, within, after, snapshot)


class SharesCachedSnapshots(KeptMemory):
    def __init__(self, *, max_changes: int = 100_000) -> None:
        super().__init__(max_changes=max_changes)
        self._cached: dict[tuple[Kind, Within], Sequence[pb.Resource]] = {}

    def tail(self, kind: Kind, within: Within, after: int, snapshot: ListSnapshot | None) -> LogWatch:
        if snapshot is not None:
            snapshot = ListSnapshot(self._cached.setdefault((kind, within), snapshot._resources))
        return super().tail(kind, within, after, snapshot)


BROKEN: Broken = {
    ReadsALaggingReplica: [
        claims.an_acknowledged_write_is_read,
        watches.a_delivered_change_is_read,
        concurrency.a_later_read_never_has_a_lower_position,
    ],
    ListsALaggingReplica: [
        claims.an_acknowledged_write_is_read,
        concurrency.a_delivered_change_is_in_every_later_read,
        concurrency.a_later_read_never_has_a_lower_position,
    ],
    IgnoresTenancyInReads: [claims.an_unknown_key_reads_as_absent],
    ListsInOrderOfWriting: [claims.a_list_is_filtered_and_sorted_by_key],
    TakesPrefixesForPatterns: [claims.a_list_is_filtered_and_sorted_by_key],
    BeginsAPageAtItsKey: [claims.a_list_continues_after_a_key_and_ends_at_its_limit],
    SkipsOneBetweenPages: [claims.a_list_continues_after_a_key_and_ends_at_its_limit],
    CountsPagesByNumber: [concurrency.pages_contain_every_resource_that_stays],
    SnapshotsOfAllNamespaces: [claims.a_snapshot_is_filtered],
    TailsOfAllNames: [claims.the_changes_after_a_snapshot_are_filtered],
    KeepsEmptyKinds: [claims.kinds_are_those_of_the_stored_resources],
    OwnsByTheBeginningOfAUid: [claims.owned_resources_are_found_by_the_owners_uid],
    ForgetsResourcesOfADeletedOwner: [claims.owned_resources_are_found_after_their_owner_is_deleted],
    LosesOwnersByAnUpdate: [
        claims.owned_resources_are_found_after_their_owner_is_deleted,
        concurrency.lists_by_owner_agree_with_lists,
    ],
    ReadsThenTakesItsPosition: [concurrency.a_read_returns_the_state_at_its_position],
    ListsOneKeyAfterTheOther: [
        concurrency.a_read_returns_the_state_at_its_position,
        concurrency.a_commit_is_never_seen_in_part,
    ],
    ListsWithoutStatus: [grammar.reads_and_watches_return_the_same_resource],
    SnapshotsPieceByPiece: [concurrency.a_large_snapshot_is_of_one_revision],
    SnapshotsThenFindsItsTail: [
        concurrency.a_snapshot_joined_with_its_tail_has_no_gap_and_no_repeat,
        concurrency.a_filtered_snapshot_joined_with_its_tail_has_no_gap_and_no_repeat,
    ],
    TailsBeginBeforeTheSnapshot: [concurrency.a_snapshot_joined_with_its_tail_has_no_gap_and_no_repeat],
    SharesCachedSnapshots: [grammar.a_new_watch_has_no_deleted_resource],
}
