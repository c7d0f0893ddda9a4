"""The answers of one process: its controllers' work on a resource, and all pending work, from status and journal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import trio

from headway._gen.headway.observe.v1 import (
    Cause,
    ControllerWhy,
    LeftOut,
    PastReconcile,
    PrimingType,
    Ref,
    Standby,
    StuckItem,
    StuckList,
    TurnedAwayChange,
    UnmappedChange,
)
from headway.base import bounded, by_turns, wall_time
from headway.mapper import mapper_name
from headway.reconcile import Reason
from headway.resource import Key, ResourceId
from headway.run import ControllerStatus, KeyStatus, LostEvents, Supervisor, Unmapped
from headway.why.answers import LONGEST, STUCK, Wall, past_reconciles, ref_of, short_name, shortened

UNMAPPED = 10
_LINE = 300
"""The number of characters of the line where a reconcile waits."""
TURNED_AWAY = 3
"""The number of changes of watched types that a predicate turned away, in an answer about a managed resource."""


def to_wall() -> Wall:
    """Return a function from a time on Trio's clock to seconds since 1970."""
    offset = wall_time() - trio.current_time()
    return lambda at: at + offset


def controllers_why(supervisors: Iterable[Supervisor], id: ResourceId) -> list[ControllerWhy]:
    """Return what each controller that manages or watches the type of a resource does about it."""
    wall = to_wall()
    found: list[ControllerWhy] = []
    for each in supervisors:
        definition = each.definition
        if definition is None:
            continue
        if definition.manages.kind == id.type.unversioned:
            found.append(_Asked(each, definition, id, wall).managing())
        elif any(type.kind == id.type.unversioned for type in definition.watches):
            found.append(_Asked(each, definition, id, wall).watching())
    return found


class _Asked:
    """A question about one resource to one controller."""

    def __init__(self, supervisor: Supervisor, definition: Any, id: ResourceId, wall: Wall) -> None:
        self._supervisor = supervisor
        self._definition = definition
        self._id = id
        self._wall = wall
        self._journal = supervisor.journal
        self._through = {type.name: mapper_name(watch.mapper) for type, watch in definition.watches.items()}
        self._why = ControllerWhy(name=supervisor.fence_name, process=supervisor.process)

    def watching(self) -> ControllerWhy:
        """Return what the controller does about a resource of a watched type."""
        status, key = self._supervisor.status(), self._supervisor.key_status(self._id.key)
        left_out = [each for each in self._left_out() if each.resource == ref_of(self._id.type, self._id.key)]
        why = replace(self._why, role="watches", turned_away=self._turned_away(), left_out=left_out)
        if status.phase != "running" or key is None:
            return self._inactive(why, status)
        concerned = [each for each in key.unmapped if (each.type.unversioned, each.key) == self._kind_and_key]
        return replace(why, unmapped=self._unmapped(concerned), unmapped_count=len(concerned))

    def managing(self) -> ControllerWhy:
        """Return what the controller does about a resource that it manages."""
        status, key = self._supervisor.status(), self._supervisor.key_status(self._id.key)
        lost = LostEvents() if self._supervisor.events is None else self._supervisor.events.lost
        runs = () if self._journal is None else self._journal.runs_of(self._id.key)
        past = past_reconciles(runs, self._wall, self._cause)
        why = replace(
            self._why,
            role="manages",
            turned_away=[*self._turned_away(), *self._turned_away_elsewhere()],
            left_out=list(self._left_out()),
            restarts=status.restarts,
            restart_error=status.error if status.restarts else "",
            reconciles=past,
            paused=status.paused is not None,
            pause_reason=status.paused or "",
            writes_held=status.writes_held,
            events_lost=lost.count,
            events_error=lost.error,
            events_lost_at=lost.at,
        )
        if status.phase != "running" or key is None:
            return self._inactive(why, status)
        why = replace(
            why,
            shard=0 if key.shard is None else key.shard + 1,
            unmapped=self._unmapped(key.unmapped),
            unmapped_count=len(key.unmapped),
            behind=key.waiting,
        )
        return self._in_queue(why, key, past) if key.here else self._elsewhere(why, key)

    @property
    def _kind_and_key(self) -> tuple[tuple[str, str], Key]:
        return self._id.type.unversioned, self._id.key

    def _inactive(self, why: ControllerWhy, status: ControllerStatus) -> ControllerWhy:
        """Return the answer of a controller that reconciles nothing now."""
        state = "starting" if status.phase == "running" else status.phase
        run = self._supervisor.run
        initialising = None if run is None or state != "starting" else run.initialising()
        if initialising is not None:
            since, stack = initialising
            return replace(why, state="initialising", since=self._wall(since), stack=bounded(stack, LONGEST))
        return replace(
            why,
            state=state,
            since=self._wall(trio.current_time() - status.seconds),
            error=status.error,
            traceback=self._traceback("RunEnded") if status.error else "",
            holder=status.leader,
            priming=priming_types(status),
        )

    def _elsewhere(self, why: ControllerWhy, key: KeyStatus) -> ControllerWhy:
        """Return the answer of a controller whose shard another process has."""
        lease = f"{self._supervisor.fence_name}#{key.shard}/"
        events = () if self._journal is None else self._journal.events("LeaseAwaited")
        holder = next((str(each.fields["holder"]) for each in events if str(each.fields["name"]).startswith(lease)), "")
        return replace(why, state="standby", holder=holder)

    def _in_queue(self, why: ControllerWhy, key: KeyStatus, past: Sequence[PastReconcile]) -> ControllerWhy:
        """Return the answer of a controller that is running here."""
        queued, not_done, wall = key.queued, key.not_done, self._wall
        if queued is None and not_done is None:
            return replace(why, state="idle", since=past[0].at if past else 0.0)
        if not_done is not None:
            trace = past[0].traceback if past else ""
            why = replace(why, error=not_done.error, traceback=trace, attempt=not_done.attempts)
        if queued is None:
            assert not_done is not None
            return replace(why, state="given up", since=wall(not_done.at))
        why = replace(
            why,
            attempt=queued.attempt,
            causes=[self._cause(each) for each in (*queued.reasons, *queued.following)],
            owed_since=0.0 if queued.state == "scheduled" else wall(queued.since),
        )
        if queued.state == "scheduled":
            return replace(why, state="scheduled", until=wall(queued.due))
        if key.began is not None:
            return replace(why, state="running", since=wall(key.began), stack=bounded(key.stack, LONGEST))
        if key.hold is not None:
            hold = key.hold
            written = None if hold.written is None else ref_of(hold.written.type, hold.written.key)
            by = None if hold.key is None else ref_of(self._definition.manages.name, hold.key)
            return replace(
                why, state="held", since=wall(hold.since), held_write=written, held_by=by, error=hold.why, traceback=""
            )
        if queued.state == "paced":
            return replace(why, state="paced", until=wall(queued.due), error="", traceback="")
        if queued.state == "backing off":
            slowed = not_done is not None and not_done.outcome == "slowed"
            return replace(why, state="slowed" if slowed else "waiting", until=wall(queued.due))
        why = replace(why, state="queued", since=wall(queued.since), priority=key.priority, before=key.before)
        if key.busy is None or why.paused:
            return why
        busy, began = key.busy
        return replace(
            why,
            busy=ref_of(self._definition.manages.name, busy),
            busy_since=wall(began),
            workers=self._definition.concurrency,
        )

    def _traceback(self, event: str, **fields: object) -> str:
        """Return the traceback of the newest event with this name and these fields."""
        for each in () if self._journal is None else self._journal.events(event):
            if all(each.fields.get(name) == value for name, value in fields.items()):
                return bounded(each.fields.get("traceback", ""), LONGEST)
        return ""

    def _unmapped(self, changes: Sequence[Unmapped]) -> list[UnmappedChange]:
        return [
            UnmappedChange(
                resource=ref_of(each.type, each.key),
                revision=each.revision,
                function=each.function,
                error=each.error,
                traceback=self._traceback("MappingFailed", mapper=each.function, type=each.type),
                failures=each.failures,
                since=self._wall(each.since),
                until=self._wall(each.due),
            )
            for each in changes[:UNMAPPED]
        ]

    def _turned_away(self) -> list[TurnedAwayChange]:
        if self._journal is None:
            return []
        return [
            TurnedAwayChange(self._wall(each.at), ref_of(each.type, each.key), each.revision, each.predicate)
            for each in self._journal.turned_away_of(*self._kind_and_key)
        ]

    def _turned_away_elsewhere(self) -> Iterator[TurnedAwayChange]:
        """Yield the last changes of watched types that a predicate turned away. They may be about the resource."""
        if self._journal is not None:
            kind = self._id.type.unversioned
            others = (each for each in reversed(self._journal.turned_away.values()) if each.type.unversioned != kind)
            for each in islice(others, TURNED_AWAY):
                yield TurnedAwayChange(self._wall(each.at), ref_of(each.type, each.key), each.revision, each.predicate)

    def _left_out(self) -> Iterator[LeftOut]:
        """Yield the indexes that lack resources. If the asked resource is one of them, it is the one that is named."""
        for name, index, keys in self._supervisor.left_out():
            asked = name.unversioned == self._id.type.unversioned and self._id.key in keys
            key = self._id.key if asked else min(keys)
            error, trace = "", ""
            for each in () if self._journal is None else self._journal.events("IndexFailed"):
                if each.fields["index"] == index and each.fields["type"] == name:
                    error, trace = each.fields["error"], each.fields.get("traceback", "")
                    break
            yield LeftOut(index, len(keys), ref_of(name, key), error, bounded(trace, LONGEST))

    def _cause(self, reason: Reason) -> Cause:
        if reason.type is None or reason.key is None:
            return Cause(reason.what)
        own = (reason.type.unversioned, reason.key) == self._kind_and_key
        through = "" if own else self._through.get(reason.type, "")
        return Cause(reason.what, ref_of(reason.type, reason.key), reason.revision, through)


def priming_types(status: ControllerStatus) -> list[PrimingType]:
    """Return the types that a controller's run waits for."""
    if status.phase != "priming":
        return []
    return [
        PrimingType(str(each.type), each.resources, each.revision, each.target, each.cut_off)
        for each in status.types
        if not each.primed or each.revision < each.target
    ]


def stuck_here(
    supervisors: Iterable[Supervisor], longer_than: float, types: Collection[str] | None = None
) -> StuckList:
    """Return what has been pending in this process for longer than this many seconds, the oldest first.

    Args:
        types: the types whose resources are asked about; None for all.
    """
    wall, now = to_wall(), trio.current_time()
    items: list[StuckItem] = []
    standbys: list[Standby] = []
    more = 0
    for each in supervisors:
        found, left = _stuck_of(each, now, longer_than, wall, types)
        items += found
        more += left
        standbys += _standby_of(each, now, longer_than, wall, types)
    kept = shortened(items)
    return StuckList(wall_time(), kept, more + len(items) - len(kept), standbys=standbys)


def _standby_of(
    supervisor: Supervisor, now: float, longer_than: float, wall: Wall, types: Collection[str] | None
) -> Iterator[Standby]:
    """Yield a controller that has been on standby for longer than this many seconds."""
    definition, status = supervisor.definition, supervisor.status()
    if definition is None or status.phase != "standby" or status.seconds <= longer_than:
        return
    manages = str(definition.manages.name)
    if types is None or manages in types:
        yield Standby(supervisor.fence_name, supervisor.process, manages, wall(now - status.seconds))


def _stuck_of(
    supervisor: Supervisor, now: float, longer_than: float, wall: Wall, types: Collection[str] | None
) -> tuple[list[StuckItem], int]:
    status, before, definition = supervisor.status(), now - longer_than, supervisor.definition
    if definition is None:
        return [], 0
    type = definition.manages.name
    wanted = types is None or str(type) in types
    of = StuckItem(supervisor.fence_name, supervisor.process, Ref(str(type)))
    # A phase begins again with each attempt, so it never becomes old if run after run fails.
    began = phase_began = now - status.seconds
    if supervisor.failing_since is not None:
        began = min(began, supervisor.failing_since)
    if wanted and status.phase in ("starting", "priming", "resting") and began < before:
        waits = ", ".join(f"{each.type} ({each.received} received)" for each in priming_types(status))
        initialising = None if supervisor.run is None else supervisor.run.initialising()
        state, line = (status.phase, "") if initialising is None else ("initialising", _innermost(initialising[1]))
        state = "failing" if began < phase_began else state
        return [replace(of, state=state, since=wall(began), error=status.error or waits, line=line)], 0
    if supervisor.run is None or supervisor.run.keys is None:
        return [], 0
    paused = "" if status.paused is None else f"the controller is paused{status.paused and f' ({status.paused})'}"
    pending = supervisor.run.keys.pending_since(before, STUCK)
    held = f"the controller {status.writes_held}" if status.writes_held else ""
    items = [
        replace(
            of,
            resource=ref_of(type, key),
            state=_state_of(queued.state, not_done is not None and not_done.outcome == "slowed", pending.hold),
            since=wall(queued.since),
            attempt=queued.attempt,
            error=(paused or held) if not_done is None else not_done.error,
            line=_innermost(pending.stacks.get(key, "")),
        )
        for key, queued, not_done in pending.keys
    ]
    items += [
        replace(of, resource=ref_of(type, each.id.key), state="given up", since=wall(each.at), error=each.error)
        for each in pending.given_up
    ]
    # A mapper may have failed for a change of another type than the keys.
    managed = items if wanted else []
    changes = [each for each in pending.unmapped if types is None or str(each.type) in types]
    kept = islice(by_turns(changes, lambda each: each.type), STUCK)
    unmapped = [
        replace(
            of,
            resource=ref_of(each.type, each.key),
            state="unmapped",
            since=wall(each.since),
            attempt=each.failures,
            error=f"{short_name(each.function)}: {each.error}",
        )
        for each in kept
    ]
    more = (pending.total - len(pending.keys) if wanted else 0) + len(changes) - len(unmapped)
    return managed + unmapped, more


def retry_here(supervisors: Iterable[Supervisor], controller: str, id: ResourceId) -> dict[str, bool]:
    """Let a controller of this process reconcile a resource now, whatever its delay.

    Return the name of the process, with True if it is reconciling the resource, and does so again after that. The
    result is empty if the process does not have the resource.
    """
    kind = id.type.unversioned
    return {
        each.process: running
        for each in supervisors
        if each.fence_name == controller
        and each.definition is not None
        and each.definition.manages.kind == kind
        and (running := each.retry(id.key)) is not None
    }


def _innermost(stack: str) -> str:
    """Return the innermost frame of a stack in one line: ``File "shop.py", line 52, in billing: await sleep(9)``."""
    place, _, code = stack[stack.rfind("  File ") :].strip().partition("\n")
    line = code.strip().partition("\n")[0]
    return bounded(f"{place}: {line}" if line else place, _LINE)


def _state_of(queued: str, slowed: bool, hold: object) -> str:
    if queued == "in hand":
        return "running"
    if hold is not None:
        return "held"
    if queued == "paced":
        return queued
    if queued == "backing off":
        return "slowed" if slowed else "waiting"
    return "queued"
