"""
An engine with the fleet's controllers, which kills itself at a named step.

    python -m tests.examples.fleet_engine FOLDER                      run the scenario, and print all steps
    python -m tests.examples.fleet_engine FOLDER --crash-at STEP      run the scenario, and `kill -9` itself at STEP
    python -m tests.examples.fleet_engine FOLDER --adopt              run no scenario: reconcile the stored fleet, print
                                                                      its state, and continue (--crash-at: then end)

The steps are counted and not listed. Each call that changes the store has two: before the request is sent, and after it
is acknowledged but before its caller knows. Each call that changes a process has two or more. The name of a step has a
counter, such as `Write Instance sent:3`, so that it is the same in every run, however the controllers interleave. A
plain number counts all steps.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import trio

import headway
from examples.fleet import apps, children, endpoints, processes, show
from examples.fleet.declared import APP, ENDPOINTS, INSTANCE, App, app, is_healthy
from examples.fleet.instances import Keeper
from headway.events import Reconciled, RunEnded
from headway.rpc import InProcessChannel
from tests.examples import fleet_program
from tests.examples.fleet_observer import MARK

CONTROLLERS = (apps.apps, endpoints.endpoints)  # declared by their modules

STARTS = "starts"
"""The file in the folder in which every process notes its start."""
PATIENCE = 40.0

_RESOURCES, _LEASES = "/headway.resource.v1.ResourceService/", "/headway.lease.v1.LeaseService/"


# --- Steps ----------------------------------------------------------------


class Steps:
    """The steps that this run has reached, and the step at which it ends."""

    def __init__(self, crash_at: str | None) -> None:
        self.reached: list[str] = []
        self._crash_at = crash_at
        self._counts = Counter[str]()

    def reach(self, name: str) -> None:
        """Count the next step of this name. Kill this process if it is the requested step."""
        self._counts[name] += 1
        step = f"{name}:{self._counts[name]}"
        self.reached.append(step)
        if self._crash_at in (step, str(len(self.reached))):
            os.kill(os.getpid(), signal.SIGKILL)

    def around_async(self, name: str, done: str, function: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        """Return an async function with a step before it and a step after it."""

        @functools.wraps(function)
        async def stepped(*arguments: Any, **named: Any) -> Any:
            self.reach(f"{name} called")
            result = await function(*arguments, **named)
            self.reach(f"{name} {done}")
            return result

        return stepped

    def after(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function with a step after it."""

        @functools.wraps(function)
        def stepped(*arguments: Any, **named: Any) -> Any:
            result = function(*arguments, **named)
            self.reach(name)
            return result

        return stepped

    def around(self, name: str, done: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function with a step before it and a step after it."""
        stepped = self.after(f"{name} {done}", function)

        @functools.wraps(function)
        def both(*arguments: Any, **named: Any) -> Any:
            self.reach(f"{name} called")
            return stepped(*arguments, **named)

        return both

    def answer(self, answer: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        """Return a channel's answer to a unary call, with two steps if it changes the store."""

        @functools.wraps(answer)
        async def stepped(channel: InProcessChannel, path: str, *rest: Any) -> Any:
            name = _change(path, rest[-1])
            if name is not None:
                self.reach(f"{name} sent")
            reply = await answer(channel, path, *rest)
            if name is not None:
                self.reach(f"{name} acknowledged")
            return reply

        return stepped


def _change(path: str, request: Any) -> str | None:
    """Return the name of a change of the store, or None if the call changes nothing."""
    if path == f"{_LEASES}Raise":
        return "Raise"
    method = path.removeprefix(_RESOURCES)
    if method not in ("Write", "WriteStatus", "Delete"):
        return None
    id = request.resource.id if method == "Write" else request.id
    return f"{method} {id.type.kind}"


def step_through(steps: Steps, stack: ExitStack) -> None:
    """Make every change of the store and of a process a step."""
    for owner, name, stepped in (
        (InProcessChannel, "_answer", steps.answer(InProcessChannel._answer)),
        (processes, "spawn", steps.around_async("spawn", "returned", processes.spawn)),
        # These two steps are within spawn: the launcher runs, with or without its lock, or executes the command.
        (children, "_start_launcher", steps.after("spawn launcher started", children._start_launcher)),
        (children, "launch", steps.around_async("spawn launch", "returned", children.launch)),
        (processes, "stop", steps.around_async("stop", "returned", processes.stop)),
        (processes, "forget", steps.around("forget", "returned", processes.forget)),
    ):
        stack.enter_context(mock.patch.object(owner, name, stepped))


# --- The scenario ---------------------------------------------------------


async def scenario(client: headway.Client, folder: Path) -> AsyncIterator[str]:
    """Declare one phase after the other. Yield the name of each phase."""

    def declared(name: str, replicas: int, *arguments: str) -> headway.Resource[App]:
        command = [sys.executable, "-I", "-S", str(Path(fleet_program.__file__)), str(folder / STARTS), *arguments]
        environment = {MARK: str(folder)}
        return APP.new(_name(folder, name), App(command=command, replicas=replicas, environment=environment))

    await client.apply(declared("one", 2))
    await client.apply(declared("two", 1))
    yield "created"
    await client.apply(declared("one", 3))
    yield "scaled up"
    await client.apply(declared("one", 1))
    yield "scaled down"
    await client.apply(declared("two", 1, "changed"))
    yield "changed"
    await client.delete(APP.id(_name(folder, "one")))
    yield "deleted"


def _name(folder: Path, name: str) -> str:
    # Ports are chosen by name, and other tests should have other ports.
    return f"{name}-{folder.name.replace('_', '-').lower()}"


async def as_declared(client: headway.Client) -> bool:
    """Return True if the store has exactly the instances and endpoints that its Apps declare, all of them healthy."""
    names = {declared.name for declared in await client.list(APP)}
    instances = await client.list(INSTANCE)
    return (
        await show.is_as_declared(client)
        and {instance.data.app for instance in instances} <= names
        and {each.name for each in await client.list(ENDPOINTS)} == names
    )


async def wait_as_declared(engine: headway.Engine) -> None:
    """Wait until the engine is idle and everything is as declared."""
    with trio.fail_after(PATIENCE):
        while True:
            await engine.wait_idle()
            if await as_declared(engine.client):
                return
            await trio.sleep(0.01)


async def state(client: headway.Client) -> dict[str, Any]:
    """Return the state of the fleet in the store."""
    return {
        "instances": [
            {"uid": each.uid, "app": each.data.app, "port": each.data.port, "healthy": is_healthy(each)}
            for each in await client.list(INSTANCE)
        ],
        "endpoints": {each.name: each.data.addresses for each in await client.list(ENDPOINTS)},
        "replicas": {each.name: each.data.replicas for each in await client.list(APP)},
    }


# --- The engine -----------------------------------------------------------


def say(what: object) -> None:
    """Print one line of JSON, and flush it."""
    print(json.dumps(what), flush=True)


def report(event: object) -> None:
    """Print failures of reconciles and runs, for the output of a failed test."""
    if isinstance(event, Reconciled | RunEnded) and event.error is not None:
        print(event, file=sys.stderr, flush=True)


async def main(options: argparse.Namespace, steps: Steps) -> None:
    Keeper(options.folder / "processes").declare()
    async with headway.open_engine(f"sqlite:{options.folder / 'fleet.db'}", app, report=report) as engine:
        if options.adopt:
            await wait_as_declared(engine)
            say(await state(engine.client))
            if options.crash_at is None:
                await trio.sleep_forever()
            return
        async for _phase in scenario(engine.client, options.folder):
            await wait_as_declared(engine)
        say(steps.reached)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--crash-at")
    parser.add_argument("--adopt", action="store_true")
    given = parser.parse_args()
    run_steps = Steps(given.crash_at)
    with ExitStack() as patches:
        step_through(run_steps, patches)
        trio.run(main, given, run_steps)
