"""The conditions of a peering's stream and its copies."""

from __future__ import annotations

from headway.peering._hub import ACCEPT_KEY, TERMINATED, Entry
from headway.peering._secrets import TERMINATED_FOR
from headway.peering._types import CONNECTED
from headway.peering._types import TERMINATED as TERMINATED_TYPE
from headway.peering.stream import Copying
from headway.resource import Condition, ConditionState

COPIED = "Copied"
"""The condition in `STREAM_KEY`: TRUE while the copies are complete and every change follows."""

RECEIVED = "Received"
"""The condition in `STREAM_KEY`: FALSE if exports or resources of the other side cannot be kept here."""

EXPORTED = "Exported"
"""The condition in `STREAM_KEY`: FALSE if the other side refuses exports or resources of this side."""

NOTIFIED = "Notified"
"""The condition in `STREAM_KEY` of a dialing peering that is being deleted: FALSE while the other side may not know."""

_SHOWN = 5
_LONGEST = 1000
_REASONS = {
    Copying.WAITING: "Waiting",
    Copying.SNAPSHOT: "Snapshot",
    Copying.CURRENT: "Current",
    Copying.ROLLED_BACK: "OriginRolledBack",
    Copying.BEHIND: "OriginBehind",
}


def conditions_of(entry: Entry) -> list[Condition]:
    """Return the conditions of a peering's stream."""
    found = [_connected(entry)]
    if entry.leaving:
        # The copies have been removed.
        return [*found, _condition(NOTIFIED, ConditionState.FALSE, "Waiting", _unknowing(entry))]
    if entry.terminated:
        text = "the other side has deleted its peering, and the copies were removed: delete this one"
        found.append(_condition(TERMINATED_TYPE, ConditionState.TRUE, TERMINATED, text))
    progress = entry.progress
    if progress is None:
        return found
    text = progress.held or progress.copying.value
    if progress.copying in (Copying.ROLLED_BACK, Copying.BEHIND):
        text += f"; the copies stay; to accept the store as it is, set the metadata {ACCEPT_KEY} to this session"
    reason, current = _REASONS[progress.copying], progress.copying is Copying.CURRENT
    if current and not entry.connected:
        reason, current, text = "Disconnected", False, "no stream is open; the copies stay as they are"
    found.append(_condition(COPIED, _state(current), reason, text))
    refused = [*progress.exports_refused, *progress.resources_refused]
    found.append(_condition(RECEIVED, _state(not refused), "Refused" if refused else "Complete", _listed(refused)))
    problems = [*progress.refusals, *([progress.source_problem] if progress.source_problem else [])]
    found.append(_condition(EXPORTED, _state(not problems), "Refused" if problems else "Complete", _listed(problems)))
    return found


def _connected(entry: Entry) -> Condition:
    if entry.connected:
        return _condition(CONNECTED, ConditionState.TRUE, "Open", "a stream is open")
    if entry.ended is None:
        return _condition(CONNECTED, ConditionState.UNKNOWN, "Waiting", "no stream has been open in this run yet")
    return _condition(CONNECTED, ConditionState.FALSE, entry.ended.reason, str(entry.ended))


def _unknowing(entry: Entry) -> str:
    why = "no stream is open" if entry.ended is None else str(entry.ended)
    return (
        f"the other side does not know of the deletion yet: {why}; it is notified when it returns within "
        f"{TERMINATED_FOR.days} days; `headway peer delete {entry.peering.name} --force` removes the peering without "
        "notifying it"
    )


def _listed(problems: list[str]) -> str:
    more = len(problems) - _SHOWN
    return "; ".join(problems[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _state(holds: bool) -> ConditionState:
    return ConditionState.TRUE if holds else ConditionState.FALSE


def _condition(type: str, state: ConditionState, reason: str, message: str) -> Condition:
    return Condition(type=type, state=state, reason=reason, message=message[:_LONGEST])
