"""`headway retry`: an operator's reconcile of a resource in whichever process has it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio

import headway as headway_package
from headway.storage import MemoryBackend
from headway.why import sentences
from tests.cli.terminal import Terminal
from tests.helpers.why_programs import Team, broken_app, part, told
from tests.why.test_workers import types_only


@asynccontextmanager
async def open_server(
    *apps: headway_package.App, store: str | MemoryBackend = "memory:"
) -> AsyncIterator[headway_package.Engine]:
    opened = headway_package.open_engine(
        store,
        *apps,
        network=headway_package.Network(["127.0.0.1:0"], insecure=True),
        report=headway_package.events.ignore,
    )
    async with opened as engine:
        yield engine


async def test_resource_that_waits_for_its_next_attempt_is_reconciled_at_once(terminal: Terminal) -> None:
    """The command names the controller and its process, and `why` says who asked."""
    app, team = broken_app()
    async with open_server(app) as engine:
        [server] = engine.addresses
        core = await engine.client.apply(team.new("core", Team()))
        before = part(await told(engine, core.id, "waiting")).attempt
        done = await terminal("retry", "team", "core", server=server)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "staff/teams reconciles Team core now, in process server\n"
        why = await told(engine, core.id, "waiting", also=lambda it: it.attempt > before)
        assert any("an operator" in each for each in sentences(why))


@pytest.mark.parametrize("at_worker", [False, True])
async def test_resource_that_is_being_reconciled_is_reconciled_again_after_that(
    terminal: Terminal, *, at_worker: bool
) -> None:
    """The command would otherwise claim for the present reconcile what only the next one does."""
    app = headway_package.App("staff")
    team = app.type("staff", "v1", "Team", Team)
    began, going_on = trio.Event(), trio.Event()
    attempts = 0

    @app.controller(manages=team)
    async def teams(_: headway_package.Runtime, __: headway_package.Request[Team]) -> None:
        nonlocal attempts
        attempts += 1
        began.set()
        await going_on.wait()

    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(open_server(types_only() if at_worker else app))
        core = await engine.client.apply(team.new("core", Team()))
        if at_worker:
            workers = headway_package.open_workers(
                engine.addresses, app, process="web-1", insecure=True, report=headway_package.events.ignore
            )
            await stack.enter_async_context(workers)
        await began.wait()
        await told(engine, core.id, "running")
        done = await terminal("retry", "team", "core", server=engine.addresses[0])
        assert (done.returncode, done.stderr) == (0, "")
        where = "web-1" if at_worker else "server"
        said = f"staff/teams reconciles Team core now, and again when that has ended, in process {where}\n"
        assert (done.stdout, attempts) == (said, 1)
        going_on.set()
        await told(engine, core.id, "idle")
        assert attempts == 2


async def test_everything_that_fails_is_retried_at_once(terminal: Terminal) -> None:
    """Also at several workers. A key that only waits for a worker is left alone."""
    app, team = broken_app()

    @app.controller(manages=team)
    async def audit(_: headway_package.Runtime, request: headway_package.Request[Team]) -> None:
        if request.id.name == "core":
            raise headway_package.PermanentFailure("no such office")

    async with open_server(types_only()) as engine:
        [server] = engine.addresses
        ids = [(await engine.client.apply(team.new(name, Team()))).id for name in ("core", "edge")]
        workers = headway_package.open_workers(
            engine.addresses, app, process="web-1", insecure=True, report=headway_package.events.ignore
        )
        async with workers:
            for each in ids:
                await told(engine, each, "waiting", also=lambda it: it.attempt == 2)
            await told(engine, ids[0], "given up", "staff/audit")
            # They have not failed for a minute.
            done = await terminal("retry", "--stuck", server=server)
            assert (done.returncode, done.stdout) == (0, "")
            assert done.stderr == "nothing to retry: no reconcile has been failing for longer than 60 s\n"
            for select, retried in (
                ((), "staff/audit reconciles 1 resource now\nstaff/teams reconciles 2 resources now\n"),
                (("--controller", "staff/audit"), "staff/audit reconciles 1 resource now\n"),
                (("event",), ""),
                (("team", "-n", "other"), ""),
            ):
                done = await terminal("retry", "--stuck", "--longer-than", "0", *select, server=server)
                assert (done.returncode, done.stdout) == (0, retried), done.stderr
                for each in ids:
                    await told(engine, each, "waiting", also=lambda it: it.attempt == 3)
                await told(engine, ids[0], "given up", "staff/audit")
            wrong = await terminal("retry", "--stuck", "team", "core", server=server)
            assert "core and --stuck exclude each other" in wrong.stderr


async def test_paused_controller_is_named(headway: Terminal) -> None:
    """Its reconcile begins after the pause, and the command says how to end it."""
    await headway("apply", "-f", "-", stdin="type: staff.v1.Team\nname: core\n")
    await headway("wait", "team", "core", "--for", "Staffed=false", "--within", "20")
    await headway("pause", "staff/teams")
    done = await headway("retry", "team", "core")
    assert (done.returncode, done.stdout.partition(" ")[0]) == (0, "staff/teams")
    assert done.stderr == ("Note: staff/teams is paused: it reconciles after `headway resume staff/teams`\n")
