"""The past reconciles of a resource, and the reasons for them, as texts. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from headway._gen.headway.observe.v1 import Cause, PastReconcile, Touched
from headway.base import ended
from headway.why.answers._texts import ref_text, seconds_text, when_text

RECONCILES = 10
"""The number of past reconciles of a key in an answer. Consecutive failures that are alike count as one."""
FAILURES = ("failed", "permanent")
"""The outcomes of a reconcile that failed."""
_SHOWN = 5
"""The number of reconciles that are shown, apart from the last one that succeeded."""

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
            sources = [f"{ref_text(each.resource)}{_through(each)}" for each in started if each.resource is not None]
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
    # A resource that the caller may not observe has no name and no revision here.
    at = f" at revision {cause.revision}" if cause.revision else ""
    return f"{ref_text(cause.resource)} {cause.what}{at}{writer}{through}"


def reconcile_sentences(reconciles: Sequence[PastReconcile], now: float) -> Iterator[str]:
    """Yield what the newest reconciles did, the newest first, and the last one that succeeded."""
    for each in reconciles[:_SHOWN]:
        yield _reconcile(each, now)
    succeeded = next((at for at, each in enumerate(reconciles) if each.outcome not in FAILURES), 0)
    if succeeded < _SHOWN:
        return
    # An answer has all failures since the last success only if they are few. An earlier version sends no number alike.
    least = "at least " if succeeded >= RECONCILES else ""
    if more := sum(max(each.alike, 1) for each in reconciles[_SHOWN:succeeded]):
        yield f"… {least}{more} more {'failure' if more == 1 else 'failures'} before that."
    yield _reconcile(reconciles[succeeded], now)


def _reconcile(it: PastReconcile, now: float) -> str:
    causes, reads, writes = reconcile_texts(it)
    error = f": {it.error}" if it.error else ""
    if it.alike > 1:
        return (
            f"{attempts_text(it)} failed with the same error, from {when_text(it.first_at, now)} to "
            f"{ended(when_text(it.at, now) + error)} "
            f"The last one took {seconds_text(it.seconds)}. Because of: {causes}. Read: {reads}. Wrote: {writes}."
        )
    took = seconds_text(it.seconds)
    return (
        f"Reconcile at {when_text(it.at, now)}, attempt {it.attempt}, in {took}: {ended(it.outcome + error)} "
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
    reads = ", ".join(map(_touched, it.reads)) or "nothing"
    writes = [f"{_resource(each)} {each.how}{f' at {each.revision}' if each.revision else ''}" for each in it.writes]
    return "; ".join(causes_text(it.causes)) or "unknown", reads, ", ".join(writes) or "nothing"


def _touched(it: Touched) -> str:
    if it.how == "get":
        return f"{_resource(it)} at version {it.revision}" if it.revision else _resource(it)
    return f"{_resource(it)} by {it.how}"


def _resource(it: Touched) -> str:
    return "" if it.resource is None else ref_text(it.resource)
