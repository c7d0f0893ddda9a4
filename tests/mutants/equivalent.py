"""Generated mutants that no test of behavior can kill, each with the reason."""

from __future__ import annotations

from typing import NamedTuple


class Equivalent(NamedTuple):
    """A mutant, by its module, its function, and the changed lines before and after."""

    module: str
    function: str
    before: str
    after: str


_ORDER = "Only the order of these numbers counts."
_SET_BEFORE_READ = "It is set before it is first read."
_NOTHING_TO_DO = "If both are equal, the block changes nothing."
_SPEED = "Only the speed or the memory differs, and the benchmarks measure it."
_SAME_LENGTH = "Both have the same length."
_EMPTY = "A snapshot at revision 0 is empty, and all entries of its store are ahead of it."
_SHARED = "if newest is not None and log.newest_from == cursor.index and (newest.changes[0].revision > cursor.revision)"

EQUIVALENT: dict[Equivalent, str] = {
    Equivalent("mapper/_map_queue.py", "MapQueue.__init__", "self._order = 0", "self._order = 1"): _ORDER,
    Equivalent("mapper/_map_queue.py", "MapQueue.push", "order += 1", "order += 2"): _ORDER,
    Equivalent("mapper/_map_queue.py", "MapQueue.pop", "self._order += 1", "self._order += 2"): _ORDER,
    Equivalent(
        "mapper/_map_queue.py",
        "MapQueue._rest",
        "item = self.pop(self._waiting[0].revision if self._waiting else 0)",
        "item = self.pop(self._waiting[0].revision if self._waiting else 1)",
    ): "Nothing waits, so that nothing is compared with it.",
    Equivalent("queue/_entries.py", "Entry.__init__", "self.ticket = 0", "pass"): _SET_BEFORE_READ,
    Equivalent("queue/_entries.py", "Entry.__init__", "self.ticket = 0", "self.ticket = 1"): _SET_BEFORE_READ,
    Equivalent("queue/_machine.py", "WorkQueue.failed", "if sooner < due:", "if sooner <= due:"): _NOTHING_TO_DO,
    Equivalent("queue/_machine.py", "WorkQueue.failed", "if begin > due:", "if begin >= due:"): _NOTHING_TO_DO,
    Equivalent("queue/_machine.py", "WorkQueue._add_known_later", "elif due < entry.due:", "elif due <= entry.due:"): (
        _NOTHING_TO_DO
    ),
    Equivalent(
        "queue/_machine.py",
        "WorkQueue.dequeue",
        "if self.min_interval and entry is not None:",
        "if self.min_interval or entry is not None:",
    ): _SPEED,
    Equivalent("queue/_machine.py", "WorkQueue._add_known", "if begin <= now:", "if begin < now:"): (
        "A key that is delayed until now is made ready at once, as it is without a delay."
    ),
    Equivalent("queue/_machine.py", "WorkQueue.add", "later = due > now", "later = due >= now"): (
        "A key that is delayed until now is made ready at once, as it is without a delay."
    ),
    Equivalent("queue/_entries.py", "Delays.__init__", "self._last_ticket = 0", "self._last_ticket = 1"): _ORDER,
    Equivalent(
        "queue/_entries.py",
        "Delays.put",
        "self._last_ticket = ticket = self._last_ticket + 1",
        "self._last_ticket = ticket = self._last_ticket + 2",
    ): _ORDER,
    Equivalent("queue/_entries.py", "Delays.pop_due", "entry.ticket = 0", "pass"): (
        "The only place with this ticket has just left the heap."
    ),
    **{
        Equivalent(
            "queue/_entries.py", "Delays.discard", "if len(self.heap) > max(_SMALL, 2 * self._size):", after
        ): _SPEED
        for after in (
            "if not len(self.heap) > max(_SMALL, 2 * self._size):",
            "if len(self.heap) >= max(_SMALL, 2 * self._size):",
            "if len(self.heap) > min(_SMALL, 2 * self._size):",
        )
    },
    **{
        Equivalent(
            "queue/_entries.py",
            "Lanes.make_live",
            "if len(self._backlog) > max(_SMALL, 2 * self._in_backlog):",
            after,
        ): _SPEED
        for after in (
            "if not len(self._backlog) > max(_SMALL, 2 * self._in_backlog):",
            "if len(self._backlog) >= max(_SMALL, 2 * self._in_backlog):",
            "if len(self._backlog) > min(_SMALL, 2 * self._in_backlog):",
        )
    },
    Equivalent("storage/_log.py", "_KindLog.__init__", "self.start = 0", "self.start = 1"): (
        "Places count from `start` everywhere, whatever it is."
    ),
    **{
        Equivalent("storage/_log.py", "_KindLog.__init__", "self.newest_from = 0", after): _SET_BEFORE_READ
        for after in ("pass", "self.newest_from = 1")
    },
    **{
        Equivalent(
            "storage/_log.py",
            "_KindLog.drop",
            "if dropped > COMPACT_AFTER and dropped * 2 > len(self.changes):",
            after,
        ): _SPEED
        for after in (
            "if not (dropped > COMPACT_AFTER and dropped * 2 > len(self.changes)):",
            "if dropped > COMPACT_AFTER or dropped * 2 > len(self.changes):",
            "if dropped >= COMPACT_AFTER and dropped * 2 > len(self.changes):",
            "if dropped > COMPACT_AFTER and dropped * 2 >= len(self.changes):",
            "if dropped > COMPACT_AFTER and dropped * 3 > len(self.changes):",
        )
    },
    **{
        Equivalent(
            "storage/_log.py",
            "CommitLog.append",
            "if self._is_full() or self._commits[0][2] + self._max_age < now:",
            after,
        ): "`_trim` is called more often, and compares exactly."
        for after in (
            "if self._is_full() or self._commits[0][2] + self._max_age <= now:",
            "if self._is_full() or self._commits[0][2] - self._max_age < now:",
        )
    },
    **{
        Equivalent(
            "storage/_log.py",
            "CommitLog.take",
            f"{_SHARED} and (len(newest.changes) <= limit) "
            "and (not (self.marks and self.marks[-1] > cursor.revision)):",
            f"{_SHARED} and {after}:",
        ): "The rest of the method returns the same object."
        for after in (
            "(len(newest.changes) < limit) and (not (self.marks and self.marks[-1] > cursor.revision))",
            "(len(newest.changes) <= limit) and (not (self.marks and self.marks[-1] >= cursor.revision))",
        )
    },
    Equivalent("storage/_log.py", "CommitLog.take", "if first < log.dropped:", "if first <= log.dropped:"): (
        "A cursor at the first kept change has taken all dropped ones, so its revision is not below `gone`."
    ),
    Equivalent(
        "storage/_log.py",
        "CommitLog.take",
        "while end < len(changes) and changes[end - 1].more:",
        "while end <= len(changes) and changes[end - 1].more:",
    ): "The last change of all is the end of a commit.",
    Equivalent(
        "storage/_log.py",
        "CommitLog.take",
        "if self.head > cursor.revision:",
        "if self.head >= cursor.revision:",
    ): _NOTHING_TO_DO,
    Equivalent(
        "mapper/_backlog.py",
        "Backlog.__iter__",
        "return (new(of, (key, None, each, 0)) for key, each in zip(self._keys, self._resources, strict=True))",
        "return (new(of, (key, None, each, 0)) for key, each in zip(self._keys, self._resources, strict=False))",
    ): _SAME_LENGTH,
    Equivalent(
        "cache/_type_store.py",
        "TypeStore.feed",
        "self._gathered.update(zip(map(resource_key, item.resources), item.resources, strict=True))",
        "self._gathered.update(zip(map(resource_key, item.resources), item.resources, strict=False))",
    ): _SAME_LENGTH,
    Equivalent(
        "cache/_type_store.py",
        "TypeStore.reply",
        "if self._replied is None or revision > self._replied.revision:",
        "if self._replied is None or revision >= self._replied.revision:",
    ): "Two replies of one revision are of one commit, and have the same position.",
    Equivalent(
        "cache/_type_store.py",
        "TypeStore._difference",
        "for key in [key for key in entries if key not in gathered and ahead.get(key, 0) <= revision]:",
        "for key in [key for key in entries if key not in gathered and ahead.get(key, 1) <= revision]:",
    ): _EMPTY,
    Equivalent(
        "cache/_type_store.py",
        "TypeStore._difference",
        "if ahead.get(key, 0) > revision:",
        "if ahead.get(key, 1) > revision:",
    ): _EMPTY,
    Equivalent(
        "cache/_type_store.py",
        "TypeStore._raise_frontier",
        "if revision > self.frontier:",
        "if revision >= self.frontier:",
    ): _NOTHING_TO_DO,
    Equivalent(
        "cache/_indexes.py",
        "by_metadata",
        "return Index(type, name or key, lambda message: message.metadata.get(key), single=True, raw=True)",
        "return Index(type, name or key, lambda message: message.metadata.get(key), single=True, raw=False)",
    ): _SPEED,
    Equivalent(
        "cache/_indexes.py",
        "by_owner",
        "return Index(type, name, lambda message: message.owner.uid if message.owner is not None else None, "
        "single=True, raw=True)",
        "return Index(type, name, lambda message: message.owner.uid if message.owner is not None else None, "
        "single=True, raw=False)",
    ): _SPEED,
    Equivalent("cache/_index_table.py", "IndexTable._fail", "self._left_out.add(key)", "pass"): (
        "The function raises for the resource again when it is removed, and a search of all values finds nothing."
    ),
}
"""The reason for each."""
