"""A lock shows if an instance has a living process, whatever its record says."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace

import pytest
import trio
import trio.testing

from examples.fleet import launcher, locks
from examples.fleet.processes import (
    Process,
    State,
    find,
    stop,
)
from tests.examples.fleet_kit import PATIENCE, Fleet, line_of, record_of, take_lock, this_process


@pytest.mark.parametrize("content", [b"", b"0", b"00000000 {}\n", b"\xff\x00\n", b'deadbeef {"pid": 1'])
async def test_damaged_record_without_a_lock_is_ignored(fleet: Fleet, content: bytes) -> None:
    """A free lock means that nothing lives, so a new process can start."""
    fleet.folder.mkdir()
    locks.lock_path(fleet.folder, "one").write_bytes(content)
    assert await find(fleet.folder) == {}
    process = await fleet.spawn()
    assert {"one": process} == await find(fleet.folder)


async def test_reused_pid_is_not_the_recorded_process(fleet: Fleet) -> None:
    """A held lock whose recorded pid now belongs to another process is a remnant."""
    own = this_process(fleet, "one")
    lock = take_lock(fleet, "one")
    launcher.tell(lock, record_of(replace(own, start_time=own.start_time - 1)))
    found = await find(fleet.folder)
    os.close(lock)
    assert found["one"].state == State.REMNANT


async def test_find_waits_for_the_record_of_a_starting_launcher(fleet: Fleet) -> None:
    """A lock that says "starting" is read again until its record exists. The old record is ignored."""
    own = this_process(fleet, "one")
    lock = take_lock(fleet, "one")
    os.pwrite(lock, record_of(replace(own, start_time=1)), 0)
    found: dict[str, Process] = {}

    async def look() -> None:
        found.update(await find(fleet.folder, timeout=PATIENCE))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await trio.testing.wait_all_tasks_blocked()
        assert found == {}
        launcher.tell(lock, record_of(own))
    os.close(lock)
    assert {"one": own} == found


@pytest.mark.parametrize("damage", [lambda _: b"", lambda record: record.replace(b"4711", b"4712")])
async def test_process_with_a_damaged_record_is_a_remnant_and_can_be_stopped(
    fleet: Fleet, damage: Callable[[bytes], bytes]
) -> None:
    """Stop ends the process that holds the lock, and no process that only reads it."""
    process = await fleet.spawn(port=4711)
    path = locks.lock_path(fleet.folder, "one")
    path.write_bytes(damage(path.read_bytes()))
    reader = fleet.start_python(
        "import signal, sys; file = open(sys.argv[1]); print(flush=True); signal.pause()", str(path)
    )
    await line_of(reader)
    found = await find(fleet.folder)
    assert (found["one"].state, found["one"].pid) == (State.REMNANT, 0)
    await stop(found["one"], grace=PATIENCE)
    assert not locks.is_alive(process)
    assert await find(fleet.folder) == {}
    reader.kill()
    assert reader.wait() == -signal.SIGKILL  # the first signal that it received


async def test_held_lock_is_always_the_file_in_the_folder(fleet: Fleet) -> None:
    """Even if files are removed all the time, no process holds the lock of a file that others cannot find."""
    path = locks.lock_path(fleet.folder, "one")
    os.close(take_lock(fleet, "one"))

    def take_and_remove() -> None:
        for _ in range(500):
            lock = launcher.take(str(path))
            if lock is not None:
                try:
                    assert os.path.samestat(os.fstat(lock), path.stat())
                    path.unlink()
                finally:
                    os.close(lock)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(trio.to_thread.run_sync, take_and_remove)
