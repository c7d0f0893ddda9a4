"""The controller of registered workloads: they are critical while their registrar is gone, and deleted later.

A registrar holds a lease while it runs. When the lease has ended, each of its workloads gets a health status that says
so. The health status is deleted when the registrar is back and has checked the workload under its new term. When the
registrar does not come back within the workload's ``deregister-critical-after``, the workload is deleted.

Everything that must survive a restart is in the store: when the registrar was found gone, and by which run of the
controller. A later run gives registrars `GRACE` seconds to come back, because they could not while the server was down.
"""

from __future__ import annotations

import datetime
from weakref import WeakKeyDictionary

import trio

import headway
from catalog.application import app
from catalog.messages import Health, HealthStatus, Workload
from catalog.registrar import marks
from catalog.types import HEALTH_STATUS, WORKLOAD

POLL = 0.5
"""The seconds between two looks at the leases."""
GRACE = 15.0
"""The seconds that a run waits at least before it deletes what an earlier run has found to be gone."""

_SINCE, _RUN, _SEEN = "gone-since", "found-by-run", "found-at"

# Most workloads have no registrar. Neither they nor the changes of their statuses must cost this controller anything.
_IS_REGISTERED = ",".join(f"{key}={value}" for key, value in marks.REGISTERED.items())
REGISTERED_WORKLOAD = WORKLOAD.within(metadata=_IS_REGISTERED)
REGISTERED_HEALTH_STATUS = HEALTH_STATUS.within(metadata=_IS_REGISTERED)

WORKLOADS_BY_REGISTRAR = headway.indexes.by_metadata(REGISTERED_WORKLOAD, marks.REGISTRAR)


# The registrars that reconciles of a run have found present since its source looked at the leases. Without this, the
# source would miss a lease that begins and ends between two looks.
_FOUND_PRESENT: WeakKeyDictionary[headway.Runtime, set[str]] = WeakKeyDictionary()


async def leases(rt: headway.Runtime, enqueue: headway.sources.Enqueue) -> None:
    """Enqueue the workloads of each registrar whose lease has begun, ended, or another term."""
    terms: dict[str, int] = {}
    while True:
        held = await rt.client.leases.list(marks.LEASES)
        found = {lease.name.removeprefix(marks.LEASES): lease.term for lease in held}
        changed = {name for name in found.keys() | terms.keys() if found.get(name) != terms.get(name)}
        for name in sorted(changed | _FOUND_PRESENT.pop(rt, set()) - found.keys()):
            for workload in rt.cache.index(WORKLOADS_BY_REGISTRAR, name):
                enqueue(workload.id)
        terms = found
        await trio.sleep(POLL)


@app.controller(
    manages=REGISTERED_WORKLOAD,
    when=headway.predicates.metadata_changed(),
    watches=[
        headway.watch(REGISTERED_HEALTH_STATUS, headway.mappers.owner(), when=headway.predicates.metadata_changed()),
    ],
    indexes=[WORKLOADS_BY_REGISTRAR],
    sources={"leases": leases},
    writes=[WORKLOAD, HEALTH_STATUS],
    concurrency=8,
)
async def registrars(rt: headway.Runtime, request: headway.Request[Workload]) -> headway.RequeueAfter | None:
    """Mark the workload of a registrar that is gone, and delete it in time."""
    workload = rt.resource(request)
    registrar = workload.metadata.get(marks.REGISTRAR) if workload is not None else None
    if workload is None or registrar is None:
        return None
    name = marks.LEASES + registrar
    terms = {lease.name: lease.term for lease in await rt.client.leases.list(name)}
    statuses = rt.cache.owned(REGISTERED_HEALTH_STATUS, workload)
    mark = next((each for each in statuses if each.name == marks.gone_name(workload.name)), None)
    if name in terms:
        _FOUND_PRESENT.setdefault(rt, set()).add(registrar)
        if mark is not None and _is_checked(workload, statuses, terms[name]):
            await rt.client.delete(mark, version=mark.version)
        return None
    now = datetime.datetime.now(datetime.UTC)
    if mark is None or mark.metadata.get(_RUN) != str(rt.term):
        mark = await _write_mark(rt, workload, registrar, now, mark)
    after = _seconds(workload.metadata.get(marks.DEREGISTER_AFTER, ""))
    if not after:
        return None
    left = _left(mark, after, now)
    if left > 0:
        return headway.requeue_after(left)
    await rt.client.delete(workload, version=workload.version)
    return None


def _is_checked(
    workload: headway.Resource[Workload], statuses: list[headway.Resource[HealthStatus]], term: int
) -> bool:
    """Return True if the registrar has written the workload and all of its health statuses under this term."""
    terms = [each.metadata.get(marks.TERM) for each in statuses if marks.REGISTRAR in each.metadata]
    # A registrar can be killed before it has written the first of them.
    complete = workload.metadata.get(marks.CHECKS) == str(len(terms))
    return complete and {workload.metadata.get(marks.TERM), *terms} == {str(term)}


async def _write_mark(
    rt: headway.Runtime,
    workload: headway.Resource[Workload],
    registrar: str,
    now: datetime.datetime,
    old: headway.Resource[HealthStatus] | None,
) -> headway.Resource[HealthStatus]:
    """Write that the registrar is gone. A mark of an earlier run keeps its time."""
    since = old.metadata.get(_SINCE, now.isoformat()) if old is not None else now.isoformat()
    data = HealthStatus(
        type="registrar",
        status=Health.HEALTH_CRITICAL,
        description=f"registrar {registrar} is gone",
        output="no process holds its lease, so its checks are not made",
    )
    mark = HEALTH_STATUS.new(
        marks.gone_name(workload.name),
        data,
        owner=workload,
        partition=workload.id.partition,
        namespace=workload.id.namespace,
        metadata={**marks.REGISTERED, _SINCE: since, _RUN: str(rt.term), _SEEN: now.isoformat()},
    )
    return await rt.apply(mark)


def _left(mark: headway.Resource[HealthStatus], after: float, now: datetime.datetime) -> float:
    """Return the seconds until a workload may be deleted."""
    since, seen = (datetime.datetime.fromisoformat(mark.metadata[key]) for key in (_SINCE, _SEEN))
    grace = GRACE if seen > since else 0.0
    left = max(after - (now - since).total_seconds(), grace - (now - seen).total_seconds())
    # A clock that was set back must not keep it for ever.
    return min(left, max(after, GRACE))


def _seconds(text: str) -> float:
    """Return the seconds in a metadata entry; 0 if it has none that are valid."""
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0
