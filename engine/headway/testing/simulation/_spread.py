"""The keys that each process has reconciled, and whether shards are spread over the processes. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from headway.events import LeaseTaken
from headway.testing.simulation._trace import Trace, named

SALTS = ("", "a", "b", "c", "d", "e", "f", "g")
"""The ends of processes' names to try, until each process has keys."""


def reconciled_by(trace: Trace) -> Mapping[str, list[str]]:
    """Return the resources that each process has reconciled, as texts, by process."""
    found: dict[str, dict[str, None]] = {}
    for each in trace.reconciles:
        found.setdefault(each.process, {})[named(each.kind, each.key)] = None
    return {process: sorted(names) for process, names in sorted(found.items())}


def is_spread(trace: Trace, processes: int) -> bool:
    """Return True unless a sharded controller has keys enough for every process, but some process has none."""
    sharded = {
        event.name.partition("/")[2].partition("#")[0]
        for event in trace.events
        if isinstance(event, LeaseTaken) and "#" in event.name
    }
    for controller in sharded:
        mine = [each for each in trace.reconciles if each.controller == controller]
        keys = {each.key for each in mine}
        if len(keys) >= processes > len({each.process for each in mine}):
            return False
    return True
