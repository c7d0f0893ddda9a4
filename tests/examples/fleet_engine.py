"""
An engine with the fleet's controllers that kills itself at a named step.

    python -m tests.examples.fleet_engine FOLDER                      every phase of the scenario; prints all steps
    python -m tests.examples.fleet_engine FOLDER --crash-at STEP      the same, but `kill -9` of itself at that step
    python -m tests.examples.fleet_engine FOLDER --adopt              no scenario: make it as the store says, print
                                                                      that, and go on (with --crash-at: end)

Nobody has listed the steps: each call that changes the store is two of them (about to be sent; acknowledged, but its
caller doesn't know yet), and each that changes a process two or more. A step's name is what it does and the how-many-th
of that name it is, `Write Instance sent:3`, so that it is the same in every run, however the controllers interleave.
A plain number is the how-many-th of all.
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
"""The file in the folder that every process notes its start in."""
PATIENCE = 40.0

_RESOURCES, _LEASES = "/headway.resource.v1.ResourceService/", "/headway.lease.v1.LeaseService/"


# --- Steps ----------------------------------------------------------------


class Steps:
    """What this run has come through, and where it ends."""

    def __init__(self, crash_at: str | None) -> None:
        self.reached: list[str] = []
        self._crash_at = crash_at
        self._counts = Counter[str]()

    def reach(self, name: str) -> None:
        """Come to the next step of this name; it may be the last."""
        self._counts[name] += 1
        step = f"{name}:{self._counts[name]}"
        self.reached.append(step)
        if self._crash_at in (step, str(len(self.reached))):
            os.kill(os.getpid(), signal.SIGKILL)

    def around_async(self, name: str, done: str, function: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        """The function with a step before it and one after it."""

        @functools.wraps(function)
        async def stepped(*arguments: Any, **named: Any) -> Any:
            self.reach(f"{name} called")
            result = await function(*arguments, **named)
            self.reach(f"{name} {done}")
            return result

        return stepped

    def after(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with a step after it."""

        @functools.wraps(function)
        def stepped(*arguments: Any, **named: Any) -> Any:
            result = function(*arguments, **named)
            self.reach(name)
            return result

        return stepped

    def around(self, name: str, done: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same for a function that does not wait."""
        stepped = self.after(f"{name} {done}", function)

        @functools.wraps(function)
        def both(*arguments: Any, **named: Any) -> Any:
            self.reach(f"{name} called")
            return stepped(*arguments, **named)

        return both

    def unary(self, unary: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        """A channel's unary call, with two steps if it changes the store."""

        @functools.wraps(unary)
        async def stepped(channel: InProcessChannel, path: str, request: Any, *rest: Any, **named: Any) -> Any:
            name = _change(path, request)
            if name is not None:
                self.reach(f"{name} sent")
            reply = await unary(channel, path, request, *rest, **named)
            if name is not None:
                self.reach(f"{name} acknowledged")
            return reply

        return stepped


def _change(path: str, request: Any) -> str | None:
    """What a call changes in the store; None: nothing."""
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
        (InProcessChannel, "unary", steps.unary(InProcessChannel.unary)),
        (processes, "spawn", steps.around_async("spawn", "returned", processes.spawn)),
        # Inside of spawn: the launcher is there and may or may not have its lock; the command is being executed.
        (children, "_start_launcher", steps.after("spawn launcher started", children._start_launcher)),
        (children, "launch", steps.around_async("spawn launch", "returned", children.launch)),
        (processes, "stop", steps.around_async("stop", "returned", processes.stop)),
        (processes, "forget", steps.around("forget", "returned", processes.forget)),
    ):
        stack.enter_context(mock.patch.object(owner, name, stepped))


# --- The scenario ---------------------------------------------------------


async def scenario(client: headway.Client, folder: Path) -> AsyncIterator[str]:
    """The phases: each is declared, its name is given out, and it goes on when the caller wants the next."""

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
    # The ports follow from the names: other tests should have others.
    return f"{name}-{folder.name.replace('_', '-').lower()}"


async def as_declared(client: headway.Client) -> bool:
    """Whether the store has what its Apps say, all of it healthy, and nothing else."""
    names = {declared.name for declared in await client.list(APP)}
    instances = await client.list(INSTANCE)
    return (
        await show.is_as_declared(client)
        and {instance.data.app for instance in instances} <= names
        and {each.name for each in await client.list(ENDPOINTS)} == names
    )


async def wait_as_declared(engine: headway.Engine) -> None:
    """Return when everything is as declared and nothing is left to do."""
    with trio.fail_after(PATIENCE):
        while True:
            await engine.wait_idle()
            if await as_declared(engine.client):
                return
            await trio.sleep(0.01)


async def state(client: headway.Client) -> dict[str, Any]:
    """What the store says."""
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
    """One line, at once."""
    print(json.dumps(what), flush=True)


def report(event: object) -> None:
    """What went wrong, for whoever reads the output of a test that failed."""
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
