"""The fleet's processes end, are adopted and are stopped: real processes, real locks, a real kill -9."""

import os
import signal
from dataclasses import replace

import pytest
import trio
import trio.testing

from examples.fleet import children, locks
from examples.fleet.processes import (
    AlreadyRuns,
    State,
    find,
    last_lines,
    stop,
    wait_exit,
)
from tests.examples.fleet_kit import DYING_ENGINE, PATIENCE, SLEEP, Fleet, ended, kill, line_of, this_process

# --- Ends -----------------------------------------------------------------


async def test_a_kill_frees_the_lock_and_is_heard(fleet: Fleet) -> None:
    """Kill -9: wait_exit returns with the signal, nothing lives, no zombie is left, and it can start again."""
    process = await fleet.spawn()
    os.kill(process.pid, signal.SIGKILL)
    with trio.fail_after(PATIENCE):
        assert await wait_exit(process) == -signal.SIGKILL
    assert await find(fleet.folder) == {}
    assert not fleet.has_children()
    assert process.pid != (await fleet.spawn()).pid


async def test_an_exit_status_is_heard_once(fleet: Fleet) -> None:
    """A process that ends by itself was started all the same; its status goes to who asks first."""
    process = await fleet.spawn_script("exit 7")
    assert [await wait_exit(process), await wait_exit(process)] == [7, None]


async def test_a_cancelled_wait_leaves_the_exit_to_the_next(fleet: Fleet) -> None:
    """Cancellation of a wait loses nothing."""
    process = await fleet.spawn()
    with trio.move_on_after(0):
        await wait_exit(process)
    os.kill(process.pid, signal.SIGKILL)
    assert await wait_exit(process) == -signal.SIGKILL


async def test_nobody_else_is_waited_for(fleet: Fleet) -> None:
    """A pid that belongs to another process by now: the one that was meant has ended."""
    own = this_process(fleet, "one")
    with trio.fail_after(PATIENCE):
        await wait_exit(replace(own, start_time=own.start_time - 1))


async def test_find_reaps_what_nobody_waits_for(fleet: Fleet) -> None:
    """A process that ends unheard does not stay a zombie for the engine's life."""
    process = await fleet.spawn()
    with trio.move_on_after(0):
        await wait_exit(process)
    kill(process)
    assert await find(fleet.folder) == {}
    assert not fleet.has_children()


async def test_find_leaves_a_status_to_who_waits_for_it(fleet: Fleet) -> None:
    """Reaping what nobody waits for does not take an exit status from somebody who does."""
    statuses: list[int | None] = []

    async def wait() -> None:
        statuses.append(await wait_exit(process))

    process = await fleet.spawn()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        kill(process)
        children.reap_unheard()
    assert statuses == [-signal.SIGKILL]


# --- Adoption -------------------------------------------------------------


async def test_processes_of_a_killed_engine_are_adopted(fleet: Fleet) -> None:
    """After kill -9 of the engine its process runs on: it is found, refused a second start, waited for and stopped."""
    engine = fleet.start_engine("one", *SLEEP)
    started, pid = await line_of(engine)
    engine.kill()
    engine.wait()
    adopted = (await find(fleet.folder))["one"]
    assert ("started", int(pid), 7) == (started, adopted.pid, adopted.port)
    with pytest.raises(AlreadyRuns) as refused:
        await fleet.spawn()
    assert adopted == refused.value.process
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_exit, adopted)
        await stop(adopted, grace=PATIENCE)
    assert await find(fleet.folder) == {}


async def test_an_engine_killed_while_it_spawns_loses_nothing(fleet: Fleet) -> None:
    """Wherever its launcher is: whoever spawns next gets a process or is told of one, and there is one."""
    engine = fleet.start_engine("one", *SLEEP)
    with trio.fail_after(PATIENCE):
        while not fleet.folder.exists():  # made right before the launcher is started
            await trio.lowlevel.checkpoint()
    engine.kill()
    engine.wait()
    try:
        process = await fleet.spawn()
    except AlreadyRuns as error:
        process = error.process
    assert [process.identity] == [found.identity for found in (await find(fleet.folder)).values()]


async def test_a_launcher_that_outlives_its_engine_without_a_lock_starts_nothing(fleet: Fleet) -> None:
    """One that is so slow that the next engine has looked, and has forgotten the instance, would run for nobody."""
    started = fleet.folder / "started"
    engine = fleet.start_python(DYING_ENGINE, str(fleet.folder), str(started))
    launcher_pid = int((await line_of(engine))[0])
    engine.wait()
    assert await find(fleet.folder) == {}
    os.kill(launcher_pid, signal.SIGCONT)
    await ended(launcher_pid)
    assert not started.exists()


# --- Stopping -------------------------------------------------------------


async def test_stop_is_polite_first(fleet: Fleet) -> None:
    """A process that ends on SIGTERM is not killed."""
    process = await fleet.spawn_script("trap 'echo bye; exit' TERM; echo up > $FIFO; while :; do sleep 0.01; done")
    await fleet.hear()
    await stop(process, grace=PATIENCE)
    assert last_lines(fleet.folder, "one")[-1] == "bye"  # the shell may speak of its child, which got the signal too
    assert not fleet.has_children()


async def test_stop_kills_what_ignores_it_with_its_children(fleet: Fleet) -> None:
    """SIGTERM is ignored by the process and by what it has forked: after the grace both are gone."""
    process = await fleet.spawn_script("trap '' TERM; sleep 1000 & echo $! > $FIFO; wait")
    child = int(await fleet.hear())
    with trio.fail_after(PATIENCE):
        await stop(process, grace=0.1)
    await ended(process.pid)
    await ended(child)
    assert await find(fleet.folder) == {}


async def test_stop_kills_what_is_left_of_the_group(fleet: Fleet) -> None:
    """A child that does not hold the lock and ignores SIGTERM does not outlive the instance."""
    process = await fleet.spawn_script(
        "(trap '' TERM; exec sleep 20 3>&- 4>&- 5>&- 6>&-) & echo $! > $FIFO; exec sleep 1000"
    )
    child = int(await fleet.hear())
    await stop(process, grace=PATIENCE)
    await ended(child)


async def test_a_remnant_is_told_and_can_be_stopped(fleet: Fleet) -> None:
    """What a killed process has forked into another session holds the lock: nothing starts until it is stopped."""
    process = await fleet.spawn_script("setsid sleep 1000 & echo $! > $FIFO; exec sleep 1000")
    child = int(await fleet.hear())
    kill(process)
    unreaped = locks.read(fleet.folder, "one")
    remnant = (await find(fleet.folder))["one"]
    assert unreaped == remnant
    assert (State.REMNANT, process.pid) == (remnant.state, remnant.pid)
    with pytest.raises(AlreadyRuns, match="remnant"):
        await fleet.spawn()
    with trio.fail_after(PATIENCE / 2):  # by SIGTERM: nothing has to be killed
        await stop(remnant, grace=PATIENCE)
    await ended(child)
    assert await find(fleet.folder) == {}


async def test_stop_touches_neither_a_reused_pid_nor_a_later_run(fleet: Fleet) -> None:
    """A run that is over is stopped by doing nothing, whoever has its pid or its lock now."""
    process = await fleet.spawn()
    with trio.fail_after(PATIENCE):
        await stop(replace(process, start_time=process.start_time - 1), grace=0)
    assert {"one": process} == await find(fleet.folder)
