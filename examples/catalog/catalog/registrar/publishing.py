"""The resources of one workload, written from the results of its checks under one term of the registrar's lease.

A workload is registered when all of its checks have been made and none is critical, so it is never answered before it
works. It is deleted when a check has been critical for longer than its ``deregister_critical_after``, and registered
again when it works again. Every health status has the term: the controller `registrars` compares it with the lease's.
"""

from __future__ import annotations

import random
from typing import Any

import trio

import headway
from catalog.messages import Health, HealthStatus, Workload
from catalog.registrar import marks
from catalog.registrar.checks import kind_of
from catalog.registrar.watching import Watched
from catalog.types import HEALTH_STATUS, WORKLOAD

SYNC = 60.0
"""The seconds after which everything is compared with the store again: someone may have deleted a part of it."""

_FIRST_RETRY, _LONGEST_RETRY = 0.1, 5.0


class Publisher:
    """Writes the resources of one workload until canceled."""

    def __init__(self, client: headway.Client, registrar: str, term: int, watched: Watched) -> None:
        self._client = client
        self._registrar = registrar
        self._marks = {**marks.REGISTERED, marks.REGISTRAR: registrar, marks.TERM: str(term)}
        self._watched = watched
        self._wanted = watched.registered.workload

    async def run(self) -> None:
        """Write now, after every change, and every `SYNC` seconds."""
        retry = _FIRST_RETRY
        while True:
            seen, now = self._watched.number, trio.current_time()
            until, is_due = now + SYNC, self._watched.deregister_at <= now
            try:
                await self._write(deregister=is_due)
            except headway.HeadwayError as error:
                print(f"{self._wanted.name}: {error}; again in {retry:.1f} s", flush=True)
                until = trio.current_time() + retry * random.uniform(0.5, 1)
                retry = min(2 * retry, _LONGEST_RETRY)
            else:
                retry = _FIRST_RETRY
                if not is_due:
                    until = min(until, self._watched.deregister_at)
            with trio.move_on_at(until):
                await self._watched.wait_changed(seen)

    async def _write(self, *, deregister: bool) -> None:
        if not self._watched.known:
            return
        stored = await self._client.get(WORKLOAD, self._wanted.id)
        if deregister:
            if stored is not None and stored.metadata.get(marks.REGISTRAR) == self._registrar:
                await self._client.delete(stored, version=stored.version)
                print(f"{stored.name}: deregistered, after it was critical for too long", flush=True)
            return
        if stored is None and self._watched.health >= Health.HEALTH_CRITICAL:
            return
        await self._write_statuses(await self._client.apply(self._workload()))

    def _workload(self) -> headway.Resource[Workload]:
        after = self._watched.registered.deregister_after
        # The term makes another version of it, so that the controller does not delete what has just been registered.
        checks = str(len(self._watched.registered.checks))
        metadata = {**self._wanted.metadata, **self._marks, marks.CHECKS: checks}
        if after:
            metadata[marks.DEREGISTER_AFTER] = f"{after:g}"
        id = self._wanted.id
        return WORKLOAD.new(
            id.name, self._wanted.data, partition=id.partition, namespace=id.namespace, metadata=metadata
        )

    async def _write_statuses(self, workload: headway.Resource[Workload]) -> None:
        kept = set()
        for check in self._watched.registered.checks:
            result = self._watched.results[check.name]
            data = HealthStatus(type=kind_of(check), status=result.health, description=check.name, output=result.output)
            status = HEALTH_STATUS.new(
                f"{workload.name}-{check.name}",
                data,
                owner=workload,
                partition=workload.id.partition,
                namespace=workload.id.namespace,
                metadata=self._marks,
            )
            kept.add(status.name)
            await self._client.apply(status)
        for status in await self._client.list_by_owner(workload):
            # A check that the file no longer has.
            if status.type is HEALTH_STATUS and _is_of(status, self._registrar) and status.name not in kept:
                await self._client.delete(status)


def _is_of(resource: headway.Resource[Any], registrar: str) -> bool:
    return resource.metadata.get(marks.REGISTRAR) == registrar
