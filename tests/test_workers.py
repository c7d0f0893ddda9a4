"""`open_workers`: controllers in processes of their own, over a real network, with real signals."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.access import Access, Authorizer, Policy, Rule, TokenSet, new_token
from tests.helpers.cluster import Cluster, Job
from tests.helpers.place_program import app_of

ROOT = Path(__file__).parents[1]
PATIENCE = 50.0


class Program:
    """A process that runs a program, and its output so far."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self.changed = trio.Event()

    async def read(self) -> None:
        """Read its output until it ends."""
        rest = b""
        assert self.process.stdout is not None
        async for part in self.process.stdout:
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                self.take(line.decode())
            self.changed.set()
            self.changed = trio.Event()

    def take(self, line: str) -> None:
        """Take a line of the output."""
        self.lines.append(line)

    async def wait_line(self, text: str) -> str:
        """Wait for a line with this prefix, and return it."""
        with trio.fail_after(PATIENCE):
            while not (found := [line for line in self.lines if line.startswith(text)]):
                await self.changed.wait()
        return found[0]


P = TypeVar("P", bound=Program)


@asynccontextmanager
async def running(make: Callable[[trio.Process], P], module: str, *arguments: str) -> AsyncIterator[P]:
    """Run a program of the helpers. It is killed at the end of the block."""
    command = [sys.executable, "-m", f"tests.helpers.{module}", *arguments]
    start = partial(trio.run_process, command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    async with trio.open_nursery() as nursery:
        run = make(await nursery.start(start))
        nursery.start_soon(run.read)
        try:
            yield run
        finally:
            run.process.kill()


def program(engine: headway.Engine, name: str) -> AbstractAsyncContextManager[Program]:
    """Run `place_program`."""
    return running(Program, "place_program", engine.addresses[0], name)


def types_of(placed: headway.App) -> headway.App:
    """Return an app with the types only, which is enough for the server."""
    app = headway.App("types")
    for type in placed.registry:
        if type.name not in app.registry:
            app.registry.register(type)
    return app


@asynccontextmanager
async def served() -> AsyncIterator[tuple[headway.Engine, Any, Any]]:
    """Run an engine that serves the types without their controllers. Yield it with the types."""
    placed, job, copy = app_of("")
    async with headway.open_engine(
        "memory:", types_of(placed), network=headway.Network(["127.0.0.1:0"], insecure=True)
    ) as engine:
        yield engine, job, copy


async def copied(engine: headway.Engine, copy: Any, name: str) -> str:
    """Wait until a job was copied, and return the process that copied it."""
    with trio.fail_after(PATIENCE):
        async with engine.client.watch(copy) as changes:
            async for change in changes:
                if isinstance(change, headway.client.Upserted) and change.resource.name == name:
                    by: str = change.resource.data.by
                    return by
    raise AssertionError("unreachable")


@pytest.mark.wide
async def test_killed_and_suspended_leaders_are_replaced() -> None:
    """A leader that was suspended for longer than its ttl can no longer write."""
    async with served() as (engine, job, copy), program(engine, "web-1") as first:
        await first.wait_line("RunStarted")
        async with program(engine, "web-2") as second:
            await second.wait_line("LeaseAwaited")
            await engine.client.apply(job.new("a", Job(text="1")))
            assert await copied(engine, copy, "a") == "web-1"

            first.process.send_signal(signal.SIGKILL)
            await second.wait_line("RunStarted")
            await engine.client.apply(job.new("b", Job(text="1")))
            assert await copied(engine, copy, "b") == "web-2"

            async with program(engine, "web-3") as third:
                await third.wait_line("LeaseAwaited")
                await engine.client.apply(job.new("c", Job(text="stubborn")))
                await second.wait_line("is at it")
                second.process.send_signal(signal.SIGSTOP)
                await third.wait_line("RunStarted")
                # The new leader makes its copy first.
                await third.wait_line("wrote")
                second.process.send_signal(signal.SIGCONT)
                assert await second.wait_line("refused") == "refused Fenced"
                assert await second.wait_line("RunEnded") in ("RunEnded LeaseLost", "RunEnded Fenced")
                assert "wrote" not in second.lines
                assert (await engine.client.read(copy, "c")).data.by == "web-3"


async def test_process_has_the_rights_of_its_token() -> None:
    """The rights apply to its reads, its writes and its leases. The status shows a missing right."""
    placed, job, copy = app_of("web-1")
    names = [str(type.name) for type in (job, copy)]
    resources = [Rule(verbs=["*"], type=name, partition="*", namespace="*") for name in names]
    leases = Rule(verbs=["write"], type="internal.v1.Lease", partition="", namespace="", name_prefix="staff/")
    able, able_token = new_token(["resources", "leases"])
    unable, unable_token = new_token(["resources"])
    policies = [Policy("resources", resources), Policy("leases", [leases])]
    access = Authorizer(Access(policies, TokenSet([able_token, unable_token])))
    async with headway.open_engine(
        "memory:", types_of(placed), network=headway.Network(["127.0.0.1:0"], access=access)
    ) as engine:
        await engine.client.apply(job.new("a", Job(text="1")))
        refused = trio.Event()

        def report(event: object) -> None:
            if isinstance(event, events.RunEnded):
                refused.set()

        async with headway.open_workers(engine.addresses, app_of("web-2")[0], token=unable, report=report) as workers:
            with trio.fail_after(PATIENCE):
                await refused.wait()
            assert "PermissionDenied" in workers.status()[0].error
        async with headway.open_workers(engine.addresses, placed, process="web-1", token=able) as workers:
            with trio.fail_after(PATIENCE):
                await workers.wait_idle()
            assert [each.data.by for each in await workers.client.list(copy)] == ["web-1"]
            assert [each.holder for each in await engine.client.leases.list()] == ["web-1"]
        assert await engine.client.leases.list() == []


async def test_process_with_the_store_competes_for_the_same_leases(autojump_clock: MockClock) -> None:
    """The first process leads. Headway's own controllers run only in the process with the store."""
    cluster = Cluster(autojump_clock, "singleton")
    async with cluster.open("web-1"):
        await cluster.until(lambda: cluster.members["web-1"].status().phase == "running", 10)
        async with headway.open_engine(cluster.store, cluster.app("server")) as engine:
            await cluster.until(lambda: engine.controllers["copier"].status().phase == "standby", 10)
            await engine.client.apply(cluster.job.new("a", Job(text="1")))
            with trio.fail_after(10):
                await engine.wait_idle()
            await cluster.until(lambda: cluster.copied(a="1"), 10)
            assert {each.data.by for each in await engine.client.list(cluster.copy)} == {"web-1"}
            await cluster.members["web-1"].stop()
            await engine.client.apply(cluster.job.new("a", Job(text="2")))
            await cluster.until(lambda: cluster.copied(a="2"), 2)
            assert {each.data.by for each in await engine.client.list(cluster.copy)} == {"server"}
        assert [status.name for status in cluster.members["web-1"].engine.status()] == ["staff/copier"]


@pytest.mark.parametrize("given", ["", "a b", "-a", "a/b", "a#b", "x" * 64, "server", 3])
async def test_invalid_process_name_is_refused(given: Any) -> None:
    """The name of the process with the store is refused as well."""
    with pytest.raises(headway.errors.DeclarationError, match="process='web-1'"):
        async with headway.open_workers("127.0.0.1:1", process=given):
            pytest.fail("it opened")


@pytest.mark.parametrize("placement", ["single", "", None, 3, "sharded", 16])
def test_invalid_placement_is_refused(placement: Any) -> None:
    """The error of the declaration shows the valid forms."""
    app = headway.App("staff")
    job = app.type("staff", "v1", "Job", Job)
    right = r"'singleton' or 'every_process' or a Division, such as headway\.sharded\(shards=16\), not "
    with pytest.raises(headway.errors.DeclarationError, match=right):

        @app.controller(manages=job, placement=placement)
        async def never(_: headway.Runtime, __: headway.Request) -> None:
            """Do nothing. This reconciler is never called."""


@pytest.mark.parametrize("shards", [0, -1, 1025, 1.5, "16", True, None])
def test_invalid_number_of_shards_is_refused(shards: Any) -> None:
    """The number must be from 1 to 1,024."""
    with pytest.raises(headway.errors.DeclarationError, match=r"shards must be a whole number from 1 to 1024"):
        headway.sharded(shards=shards)
