"""The controllers of other processes and what is stuck in any, asked every few seconds for all viewers together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import trio

from headway._gen.headway.observe.v1 import ControllerNow, StuckList
from headway.page._ring import Numbers, rates
from headway.why import Elsewhere, ObserveHost

ASKED = 2.0
"""The time between two questions to the other processes while somebody watches, in seconds."""
UNWATCHED = 60.0
"""The time between two questions without a viewer, in seconds. They keep the history of the last 15 minutes."""
STUCK_ASKED = 4.0
"""The time between two questions about what is stuck, in seconds. Without a viewer they are not asked, either."""
STUCK_AFTER = 60.0
"""Work counts as stuck once it has been pending for this many seconds, as for `headway why --stuck`."""
MOST = 300
"""The number of controllers of other processes that are asked about and shown."""
_OLD = 2 * UNWATCHED
"""The time after which an earlier answer says nothing about the current rate, in seconds."""


class Other(NamedTuple):
    """A controller of another process at the last question.

    Attributes:
        rate: reconciles per second since the previous answer; None at the first one.
        failures: failed reconciles per second; None at the first answer.
    """

    of: Elsewhere
    rate: float | None = None
    failures: float | None = None


Name = tuple[str, str, str]
"""The name of a controller among those of all processes: its caller, process and controller."""


class Others:
    """The last answers of the other processes.

    Attributes:
        seen: the controllers at the last question.
        more: the number of controllers that were left out.
        stuck: the work in all processes that has been pending for long.
    """

    def __init__(self, observe: ObserveHost) -> None:
        self._observe = observe
        self.seen: Sequence[Other] = ()
        self.more = 0
        self.stuck = StuckList()
        # The time of the last answer, and the answer.
        self._before: dict[Name, tuple[float, ControllerNow]] = {}
        self._unread: dict[Name, Numbers] = {}

    async def ask(self) -> None:
        """Ask all of them once."""
        found, self.more = await self._observe.elsewhere(MOST)
        now, before = trio.current_time(), self._before
        self._before = {name_of(each): (now, each.now) for each in found if each.now is not None}
        self.seen = [self._with_rates(each, before.get(name_of(each)), now) for each in found]
        for of, rate, failures in self.seen:
            if of.now is not None and rate is not None and failures is not None:
                self._unread[name_of(of)] = Numbers(round(rate, 2), round(failures, 2), of.now.queued, of.now.lag)

    def take(self) -> Mapping[Name, Numbers]:
        """Return the last numbers of each controller since the last call."""
        taken, self._unread = self._unread, {}
        return taken

    async def ask_stuck(self) -> None:
        """Ask all processes, also the server's own, once for what is stuck."""
        self.stuck = await self._observe.stuck(STUCK_AFTER)

    @staticmethod
    def _with_rates(of: Elsewhere, before: tuple[float, ControllerNow] | None, now: float) -> Other:
        if of.now is None or before is None or not 0 < now - before[0] <= _OLD:
            return Other(of)
        return Other(of, *rates(of.now, before[1], now - before[0]))


def name_of(of: Elsewhere) -> Name:
    """Return the name of a controller of another process."""
    return of.caller, of.process, of.name
