"""From an Instance to a real process, and from the process back to the Instance's status."""

from __future__ import annotations

import math
import os
from pathlib import Path

import trio

import headway
from examples.fleet import processes
from examples.fleet.declared import HEALTHY, INSTANCE, PROCESS_FINALIZER, RUNNING, STATUS, Instance, app, is_running
from examples.fleet.locks import Process, State
from examples.fleet.ports import HOST, healthy

HEALTH_INTERVAL = 1.0
"""Seconds between two health checks of a process, and how long one may take."""
_FIRST_CHECKS = 0.1
"""Seconds between two health checks of a process that has never been healthy."""
_GRACE = 3.0
_QUICK, _LONGEST_REST = 2.0, 30.0

StatusOfExit = tuple[headway.ResourceId, Process]


class Keeper:
    """Keeps the processes of one folder. Its reconciler and its source are those of the controller `instances`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # From the reconciler to the source: whose exit is to be heard. It never blocks the reconciler.
        self._to_hear, self._to_be_heard = trio.open_memory_channel[StatusOfExit](10_000)
        self._heard: set[tuple[int, int, str]] = set()
        # When a process was last started here, and how often in a row it then ended quickly.
        self._started: dict[str, tuple[float, int]] = {}

    def declare(self) -> None:
        """Add the controller to the fleet's app."""
        app.controller(manages=INSTANCE, sources={"exits": self.exits}, concurrency=16, name="instances")(
            self.reconcile
        )

    async def reconcile(self, rt: headway.Runtime, request: headway.Request) -> headway.RequeueAfter | None:
        """The Instance's process runs, and its status says how it is; a deleted Instance's process is stopped."""
        instance = rt.cache.get(INSTANCE, request.id)
        if instance is None:
            return None
        if instance.is_deleting:
            await self._tear_down(rt, instance)
            return None
        process = await self._process(instance)
        if process is None:
            if is_running(instance):
                # At once, before it is started again: nobody should be sent to a process that isn't there.
                await self._write_status(rt, instance, "no process")
            rest = self._rest(instance.uid)
            if rest > 0:
                return headway.requeue_after(rest)
            try:
                process = await self._start(instance)
            except processes.SpawnFailed as error:
                await self._write_status(rt, instance, error.reason)
                raise
        self._hear(instance, process)
        fine = await healthy(HOST, process.port, HEALTH_INTERVAL)
        await self._write_status(rt, instance, f"process {process.pid}", running=True, fine=fine)
        return headway.requeue_after(HEALTH_INTERVAL if fine else _FIRST_CHECKS)

    async def _process(self, instance: headway.Resource[Instance]) -> Process | None:
        """What lives of the Instance, by its lock. A remnant is stopped: nothing else can start while it lives."""
        process = (await processes.find(self._folder, uids=[instance.uid])).get(instance.uid)
        if process is not None and process.state is not State.RUNNING:
            await processes.stop(process, _GRACE)
            return None
        return process

    async def _start(self, instance: headway.Resource[Instance]) -> Process:
        data = instance.data
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "NAME": instance.name,
            "PORT": str(data.port),
            **data.environment,
        }
        now = trio.current_time()
        started, quick = self._started.get(instance.uid, (-math.inf, 0))
        ended_quickly = now - started < _QUICK + _pause(quick)
        self._started[instance.uid] = (now, quick + 1 if ended_quickly else 0)
        try:
            return await processes.spawn(self._folder, instance.uid, data.command, environment, data.port)
        except processes.AlreadyRuns as error:
            # Started by a reconcile that was cut off, or by an engine that has been killed: it is the one we want.
            return error.process

    def _rest(self, uid: str) -> float:
        """Seconds until the process may be started again: none for one that had run for a while."""
        started, quick = self._started.get(uid, (-math.inf, 0))
        return started + _pause(quick) - trio.current_time()

    async def _tear_down(self, rt: headway.Runtime, instance: headway.Resource[Instance]) -> None:
        process = (await processes.find(self._folder, uids=[instance.uid])).get(instance.uid)
        if process is not None:
            await processes.stop(process, _GRACE)
        processes.forget(self._folder, instance.uid)
        self._started.pop(instance.uid, None)
        if PROCESS_FINALIZER in instance.finalizers:
            instance.finalizers = instance.finalizers - {PROCESS_FINALIZER}
            instance = await rt.client.write(instance)
        if not instance.finalizers:
            await rt.client.delete(instance)

    async def _write_status(
        self,
        rt: headway.Runtime,
        instance: headway.Resource[Instance],
        message: str,
        *,
        running: bool = False,
        fine: bool = False,
    ) -> None:
        conditions = [
            _condition(RUNNING, running, message),
            _condition(HEALTHY, fine, f"{HOST}:{instance.data.port}"),
        ]
        try:
            await rt.client.write_status(instance, STATUS, conditions)
        except headway.NotFound:
            return  # deleted meanwhile: its deletion is on its way here

    # --- the source ---

    def _hear(self, instance: headway.Resource[Instance], process: Process) -> None:
        if process.identity not in self._heard:
            self._heard.add(process.identity)
            self._to_hear.send_nowait((instance.id.without_uid(), process))

    async def exits(self, rt: headway.Runtime, enqueue: headway.sources.Enqueue) -> None:
        """The custom source: an Instance is reconciled when its process has ended, whoever had started it."""
        # The processes first: whoever started one had seen its Instance in this cache or in one before it, and a cache
        # never goes back. So a process whose Instance is not there now is one whose Instance is gone.
        found = await processes.find(self._folder)
        known = {instance.uid for instance in rt.cache.list(INSTANCE)}
        async with trio.open_nursery() as nursery:
            for uid in found.keys() - known:
                nursery.start_soon(self._stop_orphan, found[uid])
            # All others are reconciled when a run starts, and so are told to us.
            async for id, process in self._to_be_heard:
                nursery.start_soon(self._wait_exit, id, process, enqueue)

    async def _wait_exit(self, id: headway.ResourceId, process: Process, enqueue: headway.sources.Enqueue) -> None:
        try:
            await processes.wait_exit(process)
        finally:
            # Also when this run ends: the next one waits anew.
            self._heard.discard(process.identity)
        enqueue(id)

    async def _stop_orphan(self, process: Process) -> None:
        await processes.stop(process, _GRACE)
        processes.forget(self._folder, process.uid)

    async def stop_all(self) -> None:
        """Stop every process of the folder; when the engine has ended for good."""
        async with trio.open_nursery() as nursery:
            for process in (await processes.find(self._folder)).values():
                nursery.start_soon(processes.stop, process, _GRACE)


def _pause(quick: int) -> float:
    """Seconds between two starts of a process that has ended quickly so many times in a row."""
    return 0.0 if quick == 0 else min(0.25 * 2.0**quick, _LONGEST_REST)


def _condition(type: str, state: bool, message: str) -> headway.Condition:
    return headway.Condition(
        type=type,
        state=headway.ConditionState.TRUE if state else headway.ConditionState.FALSE,
        message=message,
    )
