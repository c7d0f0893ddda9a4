"""The answers as sentences. A pure function from an answer to lines. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headway._gen.headway.observe.v1 import (
    ControllerWhy,
    LeaseNow,
    LeftOut,
    PastEvent,
    Ref,
    Standby,
    Stored,
    StuckItem,
    StuckList,
    TurnedAwayChange,
    UnmappedChange,
    Why,
)
from headway.cache import PRIORITY_INDEX
from headway.pauses import pause_name
from headway.peering import PEERING, PEERING_FINALIZER, STREAM_FINALIZER
from headway.resource import EMPTIED_FINALIZER, NAMESPACE, PARTITION, Kind
from headway.why.answers._runs import causes_text, reconcile_sentences
from headway.why.answers._texts import id_of, kind_of, ref_text, seconds_text, short_name, when_text

_WITH_ERROR_OF_RUN = ("starting", "priming", "resting", "standby", "ended")
"""The states in which the error is that of the last run."""
_SHOWN = 5
"""The number of writes, of events and of unmapped changes that are shown."""


def sentences(answer: Why | StuckList) -> list[str]:
    """Return an answer of `Engine.why` or `Engine.stuck` for people, one line each."""
    return _why(answer) if isinstance(answer, Why) else _stuck_list(answer)


def _why(why: Why) -> list[str]:
    assert why.resource is not None
    lines = [f"{why.resource.type} {ref_text(why.resource).partition(' ')[2]}"]
    lines += [f"  {each}" for each in _stored(why)]
    managing = [each for each in why.controllers if each.role == "manages"]
    if not managing:
        lines += _nobody(why)
    for each in (*managing, *(each for each in why.controllers if each.role != "manages")):
        found = list(_controller(each, why))
        lines.append(f"Controller {each.name} {each.role} it, in process {each.process}.")
        lines += [f"  {line}" for line in found]
    active = {each.name for each in managing if each.state != "standby"}
    for gone in why.gone:
        if left := [name for name in gone.controllers if name not in active]:
            since = when_text(gone.since, why.at)
            lines.append(f"Process {gone.process}, which ran {', '.join(left)}, has been gone since {since}.")
    lines += [f"Process {each} did not answer, so what its controllers do is not known." for each in why.unreachable]
    if why.events:
        lines.append("Its last events, the latest first:")
        lines += [f"  {_event(each, why.at)}" for each in why.events[:_SHOWN]]
    if why.writes:
        lines.append("Its last writes, the newest first:")
        lines += [
            f"  Revision {each.revision} at {when_text(each.at, why.at)}: {each.verb}{_by(each.writer)}."
            for each in why.writes[:_SHOWN]
        ]
    return lines


def _stuck_list(stuck: StuckList) -> list[str]:
    lines = [_stuck(each, stuck.at) for each in stuck.items]
    if stuck.more:
        lines.append(f"{stuck.more} more are not listed.")
    lines += [
        f"Process {each} did not answer, so it is not known what waits for its controllers."
        for each in stuck.unreachable
    ]
    lines += [_standby(each, stuck.at) for each in stuck.standbys]
    if more := stuck.more_standbys:
        lines.append(f"Note: {more} more {'controller' if more == 1 else 'controllers'} on standby not listed.")
    return lines


def _stuck(item: StuckItem, now: float) -> str:
    where = f"controller {item.controller} ({item.process})"
    since = f"since {when_text(item.since, now)}"
    error = f": {item.error}" if item.error else ""
    line = f" at {item.line}" if item.line else ""
    if item.state == "absent":
        return (
            f"Controller {item.controller} runs in no process {since}, and {item.process} ran it last: start a worker "
            f"that runs it, or `headway delete controllerrecord {pause_name(item.controller)}` if it is not needed"
        )
    if item.resource is None or not item.resource.name:
        return f"{where[0].upper()}{where[1:]} has been {item.state} {since}{line}{error}"
    if item.state == "unmapped":
        often = "once" if item.attempt == 1 else f"{item.attempt} times"
        return f"{ref_text(item.resource)}: {where} could not map its change, and has failed {often} {since}{error}"
    if item.state == "given up":
        return (
            f"{ref_text(item.resource)}: {where} gave up at {when_text(item.since, now)}, and waits for a change{error}"
        )
    attempt = ""
    if item.attempt > 1:
        attempt = f" attempt {item.attempt}" if item.state == "running" else f" for attempt {item.attempt}"
    return f"{ref_text(item.resource)}: {where} has had work pending {since}, {item.state}{attempt}{line}{error}"


def _nobody(why: Why) -> Iterator[str]:
    assert why.resource is not None
    if not why.gone:
        yield f"No controller manages {why.resource.type} in any process that is connected to this server."


def _stored(why: Why) -> Iterator[str]:
    stored = why.stored
    if stored is None:
        deleted = next((each for each in why.writes if each.verb == "deleted"), None)
        if deleted is None:
            yield "It is not stored."
        else:
            when = when_text(deleted.at, why.at)
            yield f"It is not stored: it was deleted at revision {deleted.revision}, at {when}{_by(deleted.writer)}."
        return
    yield f"It is stored at version {stored.version}, generation {stored.generation}."
    if stored.owner is not None:
        yield f"It is owned by {ref_text(stored.owner)}, and is deleted with it."
    yield from _deletion(stored, why)
    for each in stored.conditions:
        older = "" if each.current else ", for an older generation"
        text = f" {each.reason}" if each.reason else ""
        text += f" ({each.message})" if each.message else ""
        yield f"Condition {each.type} is {each.state} by {each.by}{older}.{text}"


def _deletion(stored: Stored, why: Why) -> Iterator[str]:
    if stored.deleting:
        held = ", ".join(each.name for each in stored.finalizers)
        yield f"It is marked for deletion, and held by {held}." if held else "It is marked for deletion."
    assert why.resource is not None
    kind = id_of(why.resource).type.unversioned
    for each in stored.finalizers:
        own = own_finalizer(each.name, kind)
        if own is not None:
            # The status key has the name of the finalizer.
            told = next((it.type for it in stored.conditions if it.by == each.name and it.state == "FALSE"), "")
            left = f" Its condition {told} says what is left." if told and stored.deleting else ""
            yield f"Its finalizer {each.name} is removed by controller {own.controller} {own.once}.{left}"
        elif each.controller:
            yield f"Its finalizer {each.name} is removed by controller {each.controller}."
        else:
            yield from _free_finalizer(each.name, why)


def _free_finalizer(name: str, why: Why) -> Iterator[str]:
    """Yield what to do about a finalizer without a known controller: a program can give it any name."""
    managing = [*dict.fromkeys(each.name for each in why.controllers if each.role == "manages")]
    may = ""
    if managing:
        it, they = ("Controller", "manages") if len(managing) == 1 else ("Controllers", "manage")
        may = f" {it} {' and '.join(managing)}, which {they} the type, may remove it under that name."
    yield (
        f"Its finalizer {name} does not have the name of a controller that is known here.{may} If no running program "
        "removes it, start the one that does. Remove it by hand only if there is none: its clean-up is then never done."
    )


def _controller(it: ControllerWhy, why: Why) -> Iterator[str]:
    now = why.at
    if it.paused:
        reason = f" ({it.pause_reason})" if it.pause_reason else ""
        yield f"It is paused{reason}, so it reconciles nothing. To end that: `headway resume {it.name}`."
    if it.writes_held:
        yield f"It {it.writes_held}."
    yield from _state(it, why)
    if it.restarts and it.restart_error and it.state not in _WITH_ERROR_OF_RUN:
        runs = "1 run" if it.restarts == 1 else f"{it.restarts} runs"
        yield f"{runs} before this one ended early, the last by {it.restart_error}."
    if it.owed_since:
        yield f"Its work has been pending since {when_text(it.owed_since, now)}."
    for text in causes_text(it.causes):
        yield f"Queued by: {text}."
    for change in it.unmapped[:_SHOWN]:
        # Every answer of the controller names the change. Its own resource's has the traceback.
        other = change.resource if it.role == "manages" and change.resource != why.resource else None
        yield from _unmapped(change, it.role, now, other)
    if it.unmapped_count > len(it.unmapped[:_SHOWN]):
        yield f"{it.unmapped_count} resources in all have a change that could not be mapped."
    if it.behind:
        yield f"{it.behind} changes wait until all types of the controller have reached them."
    for left in it.left_out:
        yield from _left_out(left)
    for turned in it.turned_away:
        yield _turned_away(turned, now)
    if it.events_lost:
        events = "1 of its events" if it.events_lost == 1 else f"{it.events_lost} of its events"
        yield f"{events} could not be stored, the last at {when_text(it.events_lost_at, now)}: {it.events_error}."
    yield from reconcile_sentences(it.reconciles, now)


def _state(it: ControllerWhy, why: Why) -> Iterator[str]:
    now = why.at
    since, until = when_text(it.since, now), when_text(it.until, now)
    error = f"The last error: {it.error}" if it.error else ""
    if it.state == "idle":
        yield f"It has been idle since {since}." if it.since else "It is idle: nothing is pending."
    elif it.state == "queued":
        priority = f", with priority {it.priority}" if it.priority else ""
        yield f"It has been queued since {since}, for attempt {it.attempt}{priority}."
        if it.before:
            yield "1 key is before it." if it.before == 1 else f"{it.before} keys are before it."
        if it.workers:
            workers = "its only worker is" if it.workers == 1 else f"all {it.workers} workers are"
            yield (
                f"No worker takes it, because {workers} busy: {_named(it.busy)} has been running since "
                f"{when_text(it.busy_since, now)}."
            )
    elif it.state == "running":
        yield f"It has been running for {seconds_text(now - it.since)}, attempt {it.attempt}."
        if it.stack:
            yield "It waits at:"
            yield from _indented(it.stack)
    elif it.state == "held":
        write = f"the write of {ref_text(it.held_write)}" if it.held_write else "a write"
        by = f" in the reconcile of {ref_text(it.held_by)}" if it.held_by else ""
        yield f"It has been held since {since}: the outcome of {write}{by} is unknown, and is being resolved."
    elif it.state == "waiting" and it.attempt == 1:
        yield f"It waits until {until}. Changes until then are handled together."
    elif it.state == "waiting":
        failures = f"after {it.attempt - 1} failures in a row" if it.attempt > 2 else "after a failure"
        yield f"It waits until {until} for attempt {it.attempt}, {failures}."
    elif it.state == "slowed":
        yield f"It waits until {until}, because it {it.error}."
        error = ""
    elif it.state == "paced":
        yield (
            f"It waits until {until}, because the controller's min_interval has not passed since its last reconcile. "
            "Changes until then are handled together."
        )
    elif it.state == "given up":
        yield f"It gave up at {since}, and waits for a change."
    elif it.state == "scheduled":
        yield f"Its next call is at {until}, and nothing is pending until then."
    elif it.state == "standby":
        yield from _standing_by(it, why)
    elif it.state == "priming":
        yield f"The controller has been priming since {since}, so nothing is reconciled yet."
        for each in it.priming:
            cut_off = f"; {each.cut_off}" if each.cut_off else ""
            counts = f"{each.received} received, revision {each.revision} of {each.target}"
            yield f"It waits for {each.type}: {counts}{cut_off}."
    elif it.state == "resting":
        yield f"Its last run failed at {since}, and the next one begins soon."
    elif it.state == "starting":
        yield f"The controller has been starting since {since}: it acquires its lease and raises its fence."
    elif it.state == "initialising":
        yield f"Its initialiser has been running since {since}, and nothing is reconciled before it ends."
        if it.stack:
            yield "It waits at:"
            yield from _indented(it.stack)
    elif it.state == "ended":
        yield "The controller has ended with the block of its engine."
    if error:
        head, *rest = error.split("\n")
        yield head
        yield from _indented("\n".join(rest))
        yield from _frames(it.traceback)


def _standing_by(it: ControllerWhy, why: Why) -> Iterator[str]:
    """Yield who holds the lease that a controller waits for, for how long, and what follows from it."""
    now, lease = why.at, it.lease or LeaseNow()
    holder = lease.holder or it.holder
    process = f"process {holder}" if holder else "another process"
    if it.shard:
        yield f"It stands by: the resource belongs to shard {it.shard - 1}, which {process} holds."
    else:
        yield f"It has been standing by since {when_text(it.since, now)}: {process} holds the lease {it.name}."
    if it.lease is None:
        return
    if not lease.holder:
        yield f"No process holds the lease {lease.name} now. A process that waits for it acquires it soon."
        return
    yield (
        f"{holder} has held the lease since {when_text(lease.since, now)}, and renewed it last at "
        f"{when_text(lease.renewed, now)}. Without a renewal it ends at {when_text(lease.until, now)}."
    )
    if lease.connected and any((each.process, each.name) == (holder, it.name) for each in why.controllers):
        yield f"{holder} is connected to this server, so this answer also has what {holder} does."
    elif lease.connected:
        lacking = "has not answered" if holder in why.unreachable else "says nothing about the resource"
        yield f"{holder} is connected to this server, but {lacking}: what {holder} does is not known."
    else:
        yield (
            f"{holder} is not connected to this server. Process {it.process} does nothing for the resource until the "
            f"lease ends: ask the server that {holder} is connected to, or stop {holder} if nobody needs it."
        )


def _standby(it: Standby, now: float) -> str:
    why = "no process that is connected to this server holds its lease"
    if it.lease is not None and it.lease.holder:
        why = f"process {it.lease.holder} holds its lease and is not connected to this server"
    elif it.lease is not None:
        why = "no process holds its lease, and it has not acquired it yet"
    return (
        f"Note: controller {it.controller} ({it.process}) has been standing by since {when_text(it.since, now)}: {why}."
    )


def _indented(text: str) -> Iterator[str]:
    for line in text.rstrip("\n").split("\n"):
        if line:
            yield f"    {line}"


def _frames(traceback: str) -> Iterator[str]:
    """Yield the lines of a traceback without its end, the error's own text, which stands before it."""
    lines = traceback.rstrip("\n").split("\n")
    while lines and not lines[-1].startswith("  "):
        lines.pop()
    yield from _indented("\n".join(lines))


def _unmapped(change: UnmappedChange, role: str, now: float, other: Ref | None) -> Iterator[str]:
    # A resource that existed before the run, or that the caller may not observe, has no revision here.
    at = f", at revision {change.revision}" if change.revision else ""
    when = when_text(change.since, now)
    often = f"once, at {when}" if change.failures == 1 else f"{change.failures} times since {when}"
    may = "; the change may concern this resource" if role == "manages" else ""
    yield (
        f"The function {short_name(change.function)} raised for {_named(change.resource)}{at}. "
        f"It has raised {often}{may}. "
        f"The next attempt is at {when_text(change.until, now)}."
    )
    yield f"  {change.error}"
    if other is None:
        yield from _frames(change.traceback)
    elif other.name:
        options = (("-n", other.namespace), ("--partition", other.partition))
        more = "".join(f" {option} {unit}" for option, unit in options if unit not in ("", "default"))
        yield f"  Its traceback: `headway why {kind_of(other).lower()} {other.name}{more}`"


def _left_out(left: LeftOut) -> Iterator[str]:
    others = f", and {left.count - 1} more" if left.count > 1 else ""
    if left.index == PRIORITY_INDEX:
        yield f"{_named(left.resource)}{others}: the priority is 0, because the function of `priority` failed."
    else:
        yield (
            f"Index {left.index} lacks {_named(left.resource)}{others}, because its function raised: a read of the "
            "index fails until they have changed."
        )
    if left.error:
        yield f"  {left.error}"
        yield from _frames(left.traceback)


def _named(resource: Ref | None) -> str:
    if resource is None:
        return "a resource"
    return ref_text(resource) if resource.name else f"a {kind_of(resource)}"


def _turned_away(turned: TurnedAwayChange, now: float) -> str:
    at = f" at revision {turned.revision}" if turned.revision else ""
    return (
        f"Predicate {turned.predicate} turned away the change of {_named(turned.resource)}{at}, at "
        f"{when_text(turned.at, now)}, so nothing was queued for it."
    )


def _event(it: PastEvent, now: float) -> str:
    warning = "warning: " if it.warning else ""
    often = f" {it.count} times since {when_text(it.first, now)}." if it.count > 1 else ""
    return f"{when_text(it.last, now)}, by {it.controller}: {warning}{it.reason}: {it.text}{often and ';'}{often}"


def _by(writer: str) -> str:
    return f" by {writer}" if writer else " (writer unknown)"


class OwnFinalizer(NamedTuple):
    """A finalizer of Headway: the kind that has it, the controller that removes it, and what that waits for."""

    name: str
    kind: Kind
    controller: str
    once: str


OWN_FINALIZERS = (
    OwnFinalizer(EMPTIED_FINALIZER, NAMESPACE.kind, "headway/namespaces", "once nothing is left in the namespace"),
    OwnFinalizer(EMPTIED_FINALIZER, PARTITION.kind, "headway/partitions", "once nothing is left in the partition"),
    OwnFinalizer(PEERING_FINALIZER, PEERING.kind, "headway/peerings", "once its copies and their partition are gone"),
    OwnFinalizer(STREAM_FINALIZER, PEERING.kind, "headway/peer-streams", "once the other side has been notified"),
)


def own_finalizer(name: str, kind: Kind) -> OwnFinalizer | None:
    """Return Headway's finalizer of this name on resources of this kind, or None."""
    return next((each for each in OWN_FINALIZERS if (each.name, each.kind) == (name, kind)), None)
