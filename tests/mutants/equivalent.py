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

EQUIVALENT: dict[Equivalent, str] = {
    Equivalent("mapper/_map_queue.py", "MapQueue.__init__", "self._order = 0", "self._order = 1"): _ORDER,
    Equivalent("mapper/_map_queue.py", "MapQueue.push", "order += 1", "order += 2"): _ORDER,
    Equivalent("mapper/_map_queue.py", "MapQueue._pop_backlog", "self._order += 1", "self._order += 2"): _ORDER,
    Equivalent("mapper/_map_queue.py", "MapQueue.drain", "self._backlog.clear()", "pass"): (
        "Its iterators are exhausted: `drain` has just read them to their ends."
    ),
    Equivalent("queue/_entry.py", "Entry.__init__", "self.ticket = 0", "pass"): _SET_BEFORE_READ,
    Equivalent("queue/_entry.py", "Entry.__init__", "self.ticket = 0", "self.ticket = 1"): _SET_BEFORE_READ,
    Equivalent(
        "queue/_entry.py", "Entry.raise_to", "if priority < self.priority:", "if priority <= self.priority:"
    ): _NOTHING_TO_DO,
    Equivalent(
        "queue/_machine.py", "WorkQueue.failed", "if following.due < due:", "if following.due <= due:"
    ): _NOTHING_TO_DO,
    Equivalent("queue/_order.py", "Delays.__init__", "self._last_ticket = 0", "self._last_ticket = 1"): _ORDER,
    Equivalent(
        "queue/_order.py",
        "Delays.put",
        "self._last_ticket = ticket = self._last_ticket + 1",
        "self._last_ticket = ticket = self._last_ticket + 2",
    ): _ORDER,
    Equivalent("queue/_order.py", "Delays.pop_due", "entry.ticket = 0", "pass"): (
        "The only place with this ticket has just left the heap."
    ),
    **{
        Equivalent(
            "queue/_order.py", "Delays.discard", "if len(self._heap) > max(_SMALL, 2 * self._size):", after
        ): _SPEED
        for after in (
            "if not len(self._heap) > max(_SMALL, 2 * self._size):",
            "if len(self._heap) >= max(_SMALL, 2 * self._size):",
            "if len(self._heap) > min(_SMALL, 2 * self._size):",
        )
    },
}
