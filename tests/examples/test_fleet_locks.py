"""What lives is read from the locks, whatever their records say."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from examples.fleet import launcher, locks
from examples.fleet.processes import (
    Process,
    State,
    find,
    forget,
    stop,
    wait_exit,
)
from tests.examples.fleet_kit import PATIENCE, STUCK, Fleet, line_of, record_of, take_lock, this_process


async def test_find_in_no_folder_finds_nothing(tmp_path: Path) -> None:
    """Before the first spawn there is no folder."""
    assert await find(tmp_path / "none") == {}


async def test_a_record_without_a_lock_counts_for_nothing(fleet: Fleet) -> None:
    """A record of a living process, with the lock free, is of a run that is over."""
    fleet.folder.mkdir()
    locks.lock_path(fleet.folder, "one").write_bytes(record_of(this_process(fleet, "one")))
    assert await find(fleet.folder) == {}


@pytest.mark.parametrize("content", [b"", b"0", b"00000000 {}\n", b"\xff\x00\n", b'deadbeef {"pid": 1'])
async def test_torn_content_without_a_lock_counts_for_nothing(fleet: Fleet, content: bytes) -> None:
    """Whatever is in the file, a free lock means that nothing lives, and a new process can start."""
    fleet.folder.mkdir()
    locks.lock_path(fleet.folder, "one").write_bytes(content)
    assert await find(fleet.folder) == {}
    process = await fleet.spawn()
    assert {"one": process} == await find(fleet.folder)


async def test_a_pid_that_was_reused_is_not_the_process(fleet: Fleet) -> None:
    """A held lock whose recorded pid belongs to another process by now is a remnant."""
    own = this_process(fleet, "one")
    lock = take_lock(fleet, "one")
    launcher.tell(lock, record_of(replace(own, start_time=own.start_time - 1)))
    found = await find(fleet.folder)
    os.close(lock)
    assert found["one"].state == State.REMNANT


async def test_a_pid_of_another_boot_is_not_the_process(fleet: Fleet) -> None:
    """Pid and start time can both come again after a reboot."""
    lock = take_lock(fleet, "one")
    launcher.tell(lock, record_of(replace(this_process(fleet, "one"), boot_id="another")))
    found = await find(fleet.folder)
    os.close(lock)
    assert found["one"].state == State.REMNANT


async def test_find_waits_for_a_launcher_that_has_not_told_yet(fleet: Fleet) -> None:
    """A lock that says "starting" is looked at again until its record is there; the old record is not believed."""
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


async def test_a_launcher_that_is_stuck_is_found_by_its_lock(fleet: Fleet) -> None:
    """One that has the lock and never tells is reported with its pid, and can be stopped: it is not lost."""
    fleet.folder.mkdir()
    stuck = fleet.start_python(STUCK, str(locks.lock_path(fleet.folder, "one")))
    await line_of(stuck)
    found = await find(fleet.folder, timeout=0)
    assert (State.STARTING, stuck.pid) == (found["one"].state, found["one"].pid)
    await stop(found["one"], grace=PATIENCE)
    assert stuck.wait() == -signal.SIGTERM
    assert await find(fleet.folder) == {}


async def test_a_shorter_record_leaves_nothing_of_a_longer_one(fleet: Fleet) -> None:
    """A second run with a short command is read as well as the first with a long one."""
    await wait_exit(await fleet.spawn(command=("true", "x" * 9000)))
    process = await fleet.spawn()
    assert await find(fleet.folder) == {"one": process}


async def test_what_is_left_of_a_damaged_run_is_not_a_later_launcher(fleet: Fleet) -> None:
    """A run whose record was damaged, and that is over, can be stopped while the next one starts: that one goes on."""
    fleet.folder.mkdir()
    starting = fleet.start_python(STUCK, str(locks.lock_path(fleet.folder, "one")))
    await line_of(starting)
    found = await find(fleet.folder, timeout=0)
    await stop(replace(found["one"], pid=0, start_time=0, state=State.REMNANT), grace=PATIENCE)
    assert await find(fleet.folder, timeout=0) == found


@pytest.mark.parametrize("damage", [lambda _: b"", lambda record: record.replace(b"4711", b"4712")])
async def test_a_damaged_record_is_a_remnant_and_can_be_stopped(fleet: Fleet, damage: Callable[[bytes], bytes]) -> None:
    """The lock is held, but nobody can say by whom: stop ends whoever holds it, and nobody who looks at it."""
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
    assert reader.wait() == -signal.SIGKILL  # the first signal that it got


async def test_forget_leaves_a_living_instance_alone(fleet: Fleet) -> None:
    """The files of an instance go when it is gone, and not before."""
    process = await fleet.spawn()
    assert not forget(fleet.folder, "one")
    await stop(process, grace=PATIENCE)
    assert forget(fleet.folder, "one")
    assert list(fleet.folder.iterdir()) == []


async def test_a_lock_that_is_held_is_the_one_in_the_folder(fleet: Fleet) -> None:
    """However often files are removed meanwhile, nobody ends up with the lock of a file that nobody else can find."""
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
