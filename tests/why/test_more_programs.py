"""Broken programs that `why` has to explain: whatever keeps a resource from being done is in the sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import trio

import headway
from headway import events
from headway.resource import Resource, ResourceId
from headway.why import sentences
from tests.helpers.why_programs import Account, Team, eventually


class Program:
    """An app with teams and accounts, whose controller each test declares."""

    def __init__(self) -> None:
        self.app = headway.App("staff")
        self.team = self.app.type("staff", "v1", "Team", Team)
        self.account = self.app.type("staff", "v1", "Account", Account)

    def opened(self, **options: Any) -> Any:
        return headway.open_engine("memory:", self.app, report=events.ignore, **options)


async def asked(engine: headway.engine.Engine, id: ResourceId, sign: str) -> str:
    """Return the sentences about a resource, once they have this sign."""

    async def ask() -> str | None:
        told = "\n".join(sentences(await engine.why(id)))
        return told if sign in told else None

    return await eventually(ask)


async def stuck(engine: headway.engine.Engine) -> str:
    return "\n".join(sentences(await engine.stuck(0.0)))


async def nothing(rt: headway.Runtime, request: headway.Request[Any]) -> None:
    """Reconcile without doing anything."""


async def test_initialiser_that_never_ends_is_named_with_its_line() -> None:
    """The fence is raised long since, so that this is not what the controller waits for."""
    program = Program()

    async def ask_the_directory(_: headway.Runtime) -> None:
        await trio.sleep_forever()

    program.app.controller(manages=program.team, initialiser=ask_the_directory, name="teams")(nothing)
    async with program.opened() as engine:
        core = await engine.client.apply(program.team.new("core", Team()))
        told = await asked(engine, core.id, "Its initialiser has been running since")
        assert "nothing is reconciled before it ends" in told
        assert "in ask_the_directory" in told
        assert "fence" not in told
        assert "has been initialising since" in await stuck(engine)


async def test_source_that_dies_is_told_in_the_rest_and_in_the_next_run() -> None:
    """Between two failures everything looks well: the answer still says that runs keep ending."""
    program, fails = Program(), trio.Event()

    async def directory(_: headway.Runtime, __: Callable[[ResourceId], None]) -> None:
        await fails.wait()
        raise ConnectionError("the directory is gone")

    program.app.controller(manages=program.team, sources={"directory": directory}, name="teams")(nothing)
    async with program.opened() as engine:
        core = await engine.client.apply(program.team.new("core", Team()))
        await asked(engine, core.id, "It has been idle since")
        fails.set()
        told = await asked(engine, core.id, "Its last run failed at")
        assert "The last error: ConnectionError: the directory is gone" in told
        assert "in directory" in told
        fails = trio.Event()
        told = await asked(engine, core.id, "It has been idle since")
        assert "before this one ended early, the last by ConnectionError: the directory is gone." in told


async def test_index_that_raises_is_told_of_both_resources() -> None:
    """The account is left out of the index, and every reader of the index may miss it."""
    program = Program()

    def by_team(account: Resource[Account]) -> NoReturn:
        raise LookupError(f"no team {account.data.team}")

    index: Any = headway.indexes.by(program.account, "by_team", by_team)
    watch = headway.watch(program.account, headway.mappers.same_name())
    program.app.controller(manages=program.team, watches=[watch], indexes=[index], name="teams")(nothing)
    async with program.opened() as engine:
        core = await engine.client.apply(program.team.new("core", Team()))
        accounts = [await engine.client.apply(program.account.new(each, Account(team="x"))) for each in ("ada", "bob")]
        told = await asked(engine, core.id, "and 1 more")
        assert "Index by_team lacks Account ada, and 1 more, because its function raised" in told
        assert "LookupError: no team x" in told
        told = await asked(engine, accounts[1].id, "Index by_team")
        assert "Index by_team lacks Account bob, and 1 more" in told
        for each in accounts:
            await engine.client.delete(each)
        await engine.wait_idle()
        assert "Index" not in "\n".join(sentences(await engine.why(core.id)))


async def test_busy_workers_are_told_with_what_they_do() -> None:
    program, done = Program(), trio.Event()

    @program.app.controller(manages=program.team, concurrency=1)
    async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:  # noqa: ARG001
        if request.id.name == "slow":
            await done.wait()

    async with program.opened() as engine:
        slow = await engine.client.apply(program.team.new("slow", Team()))
        await asked(engine, slow.id, "It has been running")
        core = await engine.client.apply(program.team.new("core", Team()))
        told = await asked(engine, core.id, "It has been queued since")
        assert "No worker takes it, because its only worker is busy: Team slow has been running since" in told
        done.set()
        assert "busy" not in await asked(engine, core.id, "It has been idle since")


async def test_finalizer_of_a_process_that_is_gone_names_its_controller() -> None:
    """One that no process has had is said to be unknown, with what to do."""
    program, worker = Program(), Program()
    worker.app.controller(manages=worker.team, name="billing")(nothing)
    async with program.opened(network=headway.Network(["127.0.0.1:0"], insecure=True)) as engine:
        new = program.team.new("core", Team())
        new.finalizers = {"billing", "payroll"}
        core = await engine.client.apply(new)
        async with headway.open_workers(engine.addresses[0], worker.app, process="web-1", report=events.ignore):
            await asked(engine, core.id, "in process web-1")
        await engine.client.delete(core)
        told = await asked(engine, core.id, "has been gone since")
        assert "Its finalizer billing is removed by controller staff/billing." in told
        assert "Its finalizer payroll does not have the name of a controller that is known here." in told
        assert "Process web-1, which ran staff/billing, has been gone since" in told
