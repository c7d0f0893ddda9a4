"""The answers as sentences. A pure function from an answer to lines. No I/O."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator

from headway.why._answer import (
    Cause,
    ControllerWhy,
    LeaseNow,
    LeftOut,
    PastEvent,
    PastReconcile,
    Ref,
    Stored,
    TurnedAwayChange,
    UnmappedChange,
    Why,
    short_name,
)
from headway.why._lists import Standby, StuckItem, StuckList

_WITH_ERROR_OF_RUN = ("starting", "priming", "resting", "standby", "ended")
"""The states in which the error is that of the last run."""
_SHOWN = 5
"""The number of reconciles, of writes and of unmapped changes that are shown."""


def why_sentences(why: Why) -> list[str]:
    """Return the answer to "why is this not done?", one line each."""
    assert why.resource is not None
    lines = [f"{why.resource.type} {str(why.resource).partition(' ')[2]}"]
    lines += [f"  {each}" for each in _stored(why)]
    managing = [each for each in why.controllers if each.role == "manages"]
    if not managing:
        lines += _nobody(why)
    for each in (*managing, *(each for each in why.controllers if each.role != "manages")):
        found = list(_controller(each, why.at))
        lines.append(f"Controller {each.name} {each.role} it, in process {each.process}.")
        lines += [f"  {line}" for line in found]
    active = {each.name for each in managing if each.state != "standby"}
    for gone in why.gone:
        if left := [name for name in gone.controllers if name not in active]:
            lines.append(
                f"Process {gone.process}, which ran {', '.join(left)}, has been gone since {_when(gone.since, why.at)}."
            )
    lines += [f"Process {each} did not answer, so what its controllers do is not known." for each in why.unreachable]
    if why.events:
        lines.append("Its last events, the latest first:")
        lines += [f"  {_event(each, why.at)}" for each in why.events[:_SHOWN]]
    if why.writes:
        lines.append("Its last writes, the newest first:")
        lines += [
            f"  Revision {each.revision} at {_when(each.at, why.at)}: {each.verb}{_by(each.writer)}."
            for each in why.writes[:_SHOWN]
        ]
    return lines


def stuck_sentences(stuck: StuckList) -> list[str]:
    """Return the answer to "what is stuck?", one line each."""
    lines = [_stuck(each, stuck.at) for each in stuck.items]
    if stuck.more:
        lines.append(f"{stuck.more} more are not listed.")
    lines += [
        f"Process {each} did not answer, so it is not known what waits for its controllers."
        for each in stuck.unreachable
    ]
    return lines + [_standby(each, stuck.at) for each in stuck.standbys]


def _stuck(item: StuckItem, now: float) -> str:
    where = f"controller {item.controller} ({item.process})"
    since = f"since {_when(item.since, now)}"
    error = f": {item.error}" if item.error else ""
    if item.resource is None or not item.resource.name:
        return f"{where[0].upper()}{where[1:]} has been {item.state} {since}{error}"
    if item.state == "unmapped":
        often = "once" if item.attempt == 1 else f"{item.attempt} times"
        return f"{item.resource}: {where} could not map its change, and has failed {often} {since}{error}"
    if item.state == "given up":
        return f"{item.resource}: {where} gave up at {_when(item.since, now)}, and waits for a change{error}"
    attempt = ""
    if item.attempt > 1:
        attempt = f" attempt {item.attempt}" if item.state == "running" else f" for attempt {item.attempt}"
    return f"{item.resource}: {where} has had work pending {since}, {item.state}{attempt}{error}"


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
            when = _when(deleted.at, why.at)
            yield f"It is not stored: it was deleted at revision {deleted.revision}, at {when}{_by(deleted.writer)}."
        return
    yield f"It is stored at version {stored.version}, generation {stored.generation}."
    if stored.owner is not None:
        yield f"It is owned by {stored.owner}, and is deleted with it."
    yield from _deletion(stored)
    for each in stored.conditions:
        older = "" if each.current else ", for an older generation"
        text = f" {each.reason}" if each.reason else ""
        text += f" ({each.message})" if each.message else ""
        yield f"Condition {each.type} is {each.state} by {each.by}{older}.{text}"


def _deletion(stored: Stored) -> Iterator[str]:
    if stored.deleting:
        held = ", ".join(each.name for each in stored.finalizers)
        yield f"It is marked for deletion, and held by {held}." if held else "It is marked for deletion."
    for each in stored.finalizers:
        if each.controller:
            yield f"Its finalizer {each.name} is removed by controller {each.controller}."
        else:
            yield (
                f"Its finalizer {each.name} is of no controller that is known here: start the program that removes it, "
                "or remove it yourself if there is none."
            )


def _controller(it: ControllerWhy, now: float) -> Iterator[str]:
    if it.paused:
        why = f" ({it.pause_reason})" if it.pause_reason else ""
        yield f"It is paused{why}, so it reconciles nothing. To end that: `headway resume {it.name}`."
    yield from _state(it, now)
    if it.restarts and it.restart_error and it.state not in _WITH_ERROR_OF_RUN:
        runs = "1 run" if it.restarts == 1 else f"{it.restarts} runs"
        yield f"{runs} before this one ended early, the last by {it.restart_error}."
    if it.owed_since:
        yield f"Its work has been pending since {_when(it.owed_since, now)}."
    for text in causes_text(it.causes):
        yield f"Queued by: {text}."
    for change in it.unmapped[:_SHOWN]:
        yield from _unmapped(change, it.role, now)
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
        yield f"{events} could not be stored, the last at {_when(it.events_lost_at, now)}: {it.events_error}."
    for reconcile in it.reconciles[:_SHOWN]:
        yield _reconcile(reconcile, now)


def _state(it: ControllerWhy, now: float) -> Iterator[str]:
    since, until = _when(it.since, now), _when(it.until, now)
    error = f"The last error: {it.error}" if it.error else ""
    if it.state == "idle":
        yield f"It has been idle since {since}." if it.since else "It is idle: nothing is pending."
    elif it.state == "queued":
        yield f"It has been queued since {since}, for attempt {it.attempt}."
        if it.workers:
            workers = "its only worker is" if it.workers == 1 else f"all {it.workers} workers are"
            yield (
                f"No worker takes it, because {workers} busy: {_named(it.busy)} has been running since "
                f"{_when(it.busy_since, now)}."
            )
    elif it.state == "running":
        yield f"It has been running for {_seconds(now - it.since)}, attempt {it.attempt}."
        if it.stack:
            yield "It waits at:"
            yield from _indented(it.stack)
    elif it.state == "held":
        write = f"the write of {it.held_write}" if it.held_write else "a write"
        by = f" in the reconcile of {it.held_by}" if it.held_by else ""
        yield f"It has been held since {since}: the outcome of {write}{by} is unknown, and is being resolved."
    elif it.state == "waiting":
        failures = f"after {it.attempt - 1} failures in a row" if it.attempt > 2 else "after a failure"
        yield f"It waits until {until} for attempt {it.attempt}, {failures}."
    elif it.state == "slowed":
        yield f"It waits until {until}, because it {it.error}."
        error = ""
    elif it.state == "given up":
        yield f"It gave up at {since}, and waits for a change."
    elif it.state == "scheduled":
        yield f"It asked to be reconciled again at {until}, and nothing is pending until then."
    elif it.state == "standby":
        yield from _standing_by(it, now)
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


def _standing_by(it: ControllerWhy, now: float) -> Iterator[str]:
    """Yield who holds the lease that a controller waits for, for how long, and what follows from it."""
    lease = it.lease or LeaseNow()
    holder = lease.holder or it.holder
    process = f"process {holder}" if holder else "another process"
    if it.shard:
        yield f"It stands by: the resource belongs to shard {it.shard - 1}, which {process} holds."
    else:
        yield f"It has been standing by since {_when(it.since, now)}: {process} holds the lease {it.name}."
    if it.lease is None:
        return
    if not lease.holder:
        yield f"No process holds the lease {lease.name} now. A process that waits for it acquires it soon."
        return
    yield (
        f"{holder} has held the lease since {_when(lease.since, now)}, and renewed it last at "
        f"{_when(lease.renewed, now)}. Without a renewal it ends at {_when(lease.until, now)}."
    )
    if lease.connected:
        yield f"{holder} is connected to this server, so this answer also has what {holder} does."
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
    return f"Note: controller {it.controller} ({it.process}) has been standing by since {_when(it.since, now)}: {why}."


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


_CAUSES = {
    "started": "the start of the run",
    "owed": "what the last run left",
    "operator": "an operator, who asked for it",
    "retry": "",
}


def causes_text(causes: Iterable[Cause]) -> list[str]:
    """Return the reasons to reconcile as texts. The start of the run is one, with the resources that led to the key."""
    texts: list[str] = []
    started = [each for each in causes if each.what == "started"]
    for cause in causes:
        if cause.what != "started":
            texts.append(_cause(cause))
        elif cause is started[0]:
            sources = [f"{each.resource}{_through(each)}" for each in started if each.resource is not None]
            start = _CAUSES["started"]
            texts.append(f"{start}, from {' and '.join(sources)}" if sources else start)
    # The same reason may come again and again.
    return [*dict.fromkeys(each for each in texts if each)]


def _through(cause: Cause) -> str:
    return f" through {cause.through}" if cause.through else ""


def _cause(cause: Cause) -> str:
    if cause.resource is None:
        return _CAUSES.get(cause.what, cause.what)
    through = f", through {cause.through}" if cause.through else ""
    writer = f", which {cause.writer} wrote" if cause.writer else ""
    return f"{cause.resource} {cause.what} at revision {cause.revision}{writer}{through}"


def _unmapped(change: UnmappedChange, role: str, now: float) -> Iterator[str]:
    # A resource that was there before the run began has no revision here.
    at = f", at revision {change.revision}" if change.revision else ""
    when = _when(change.since, now)
    often = f"once, at {when}" if change.failures == 1 else f"{change.failures} times since {when}"
    may = "; the change may concern this resource" if role == "manages" else ""
    yield (
        f"The function {short_name(change.function)} raised for {_named(change.resource)}{at}. "
        f"It has raised {often}{may}. "
        f"The next attempt is at {_when(change.until, now)}."
    )
    yield f"  {change.error}"
    yield from _frames(change.traceback)


def _left_out(left: LeftOut) -> Iterator[str]:
    others = f", and {left.count - 1} more" if left.count > 1 else ""
    yield (
        f"Index {left.index} lacks {_named(left.resource)}{others}, because its function raised: a read of the index "
        "fails until they have changed."
    )
    if left.error:
        yield f"  {left.error}"
        yield from _frames(left.traceback)


def _named(resource: Ref | None) -> str:
    if resource is None:
        return "a resource"
    return str(resource) if resource.name else f"a {resource.kind}"


def _turned_away(turned: TurnedAwayChange, now: float) -> str:
    return (
        f"Predicate {turned.predicate} turned away the change of {_named(turned.resource)} at revision "
        f"{turned.revision}, at {_when(turned.at, now)}, so nothing was queued for it."
    )


def _reconcile(it: PastReconcile, now: float) -> str:
    causes, reads, writes = reconcile_texts(it)
    error = f": {it.error}" if it.error else ""
    if it.alike > 1:
        return (
            f"{attempts_text(it)} failed alike, from {_when(it.first_at, now)} to {_when(it.at, now)}{error}. "
            f"The last one took {_seconds(it.seconds)}. Because of: {causes}. Read: {reads}. Wrote: {writes}."
        )
    return (
        f"Reconcile at {_when(it.at, now)}, attempt {it.attempt}, in {_seconds(it.seconds)}: {it.outcome}{error}. "
        f"Because of: {causes}. Read: {reads}. Wrote: {writes}."
    )


def attempts_text(it: PastReconcile) -> str:
    """Return which attempts a reconcile stands for, such as ``Attempts 2 to 11``."""
    if it.attempt - it.first_attempt + 1 == it.alike:
        return f"Attempts {it.first_attempt} to {it.attempt}"
    # Each run begins with attempt 1.
    return f"{it.alike} attempts"


def reconcile_texts(it: PastReconcile) -> tuple[str, str, str]:
    """Return why a reconcile ran, what it read, and what it wrote."""
    reads = ", ".join(map(str, it.reads)) or "nothing"
    # What the caller may not observe has no revision.
    writes = [f"{each.resource} {each.how}{f' at {each.revision}' if each.revision else ''}" for each in it.writes]
    return "; ".join(causes_text(it.causes)) or "unknown", reads, ", ".join(writes) or "nothing"


def _event(it: PastEvent, now: float) -> str:
    warning = "warning: " if it.warning else ""
    often = f" {it.count} times since {_when(it.first, now)}." if it.count > 1 else ""
    return f"{_when(it.last, now)}, by {it.controller}: {warning}{it.reason}: {it.text}{often and ';'}{often}"


def _by(writer: str) -> str:
    return f" by {writer}" if writer else " (writer unknown)"


def _when(at: float, now: float) -> str:
    """Return a time of day in UTC, and how far it is from now. Times of other days have their date."""
    if not at:
        return "an unknown time"
    moment = datetime.datetime.fromtimestamp(at, datetime.UTC)
    form = "%H:%M:%S" if abs(now - at) < 43_200 else "%Y-%m-%d %H:%M:%S"
    distance = _seconds(abs(now - at))
    return f"{moment:{form}} ({f'in {distance}' if at > now else f'{distance} ago'})"


def _seconds(seconds: float) -> str:
    if seconds < 0.001:
        return "< 1 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
