"""The fleet's processes start as ordered, each exactly once."""

import os
from pathlib import Path

import pytest
import trio
import trio.testing

from examples.fleet.processes import (
    AlreadyRuns,
    Process,
    SpawnFailed,
    find,
)
from tests.examples.fleet_kit import (
    SLEEP,
    Fleet,
    line_of,
)

# --- Starting -------------------------------------------------------------


async def test_process_has_its_own_session_and_no_descriptor_of_the_engine(fleet: Fleet) -> None:
    """The only descriptors are /dev/null, the log and the lock."""
    ours = os.open("/", os.O_RDONLY)
    os.set_inheritable(ours, True)
    # Before its first output, it may still have its libraries open.
    process = await fleet.spawn_script("(echo running > $FIFO); sleep 1000; :")
    os.close(ours)
    assert await fleet.read_fifo() == "running"
    assert (process.pid, process.pid) == (os.getsid(process.pid), os.getpgid(process.pid))
    descriptors = f"/proc/{process.pid}/fd"
    files = {os.readlink(f"{descriptors}/{name}") for name in os.listdir(descriptors)}
    assert {os.devnull, str(fleet.folder / "one.log"), str(fleet.folder / "one.lock")} == files


@pytest.mark.parametrize("name", ["one.lock", "one.log"])
async def test_planted_link_is_refused_and_its_target_kept(fleet: Fleet, tmp_path: Path, name: str) -> None:
    """No record or output is written to the target of a symbolic or hard link."""
    fleet.folder.mkdir(mode=0o700)
    victim = tmp_path / "victim"
    victim.write_bytes(b"another program's file")
    for plant in (Path.symlink_to, Path.hardlink_to):
        plant(fleet.folder / name, victim)
        with pytest.raises(SpawnFailed, match="cannot prepare"):
            await fleet.spawn_script("echo overwritten")
        (fleet.folder / name).unlink()
    assert victim.read_bytes() == b"another program's file"


async def test_missing_command_fails_with_its_name(fleet: Fleet) -> None:
    """SpawnFailed and the log name the command, and nothing is left."""
    with pytest.raises(SpawnFailed, match="no-such-command") as failed:
        await fleet.spawn(command=("no-such-command", "x"))
    assert list(failed.value.log) == ["cannot run 'no-such-command': No such file or directory"]
    assert await find(fleet.folder) == {}
    assert not fleet.has_children()


# --- Exactly one ----------------------------------------------------------


async def test_one_of_many_concurrent_spawns_starts_the_process(fleet: Fleet) -> None:
    """Every other call gets an error that names that process."""
    started: list[Process] = []
    refused: list[Process] = []

    async def try_spawn() -> None:
        try:
            started.append(await fleet.spawn())
        except AlreadyRuns as error:
            refused.append(error.process)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(try_spawn)
    assert len(started) == 1
    assert [started[0].identity] * 4 == [process.identity for process in refused]


async def test_one_of_two_engines_starts_the_process(fleet: Fleet) -> None:
    """Both engines know its pid."""
    engines = [fleet.start_engine("one", *SLEEP) for _ in range(2)]
    said = [await line_of(engine) for engine in engines]
    running = (await find(fleet.folder))["one"]
    assert [["refused", str(running.pid)], ["started", str(running.pid)]] == sorted(said)


# --- Cancellation ---------------------------------------------------------


@pytest.mark.parametrize("milliseconds", [0, 5, 20, 40, 60])
async def test_canceled_spawn_leaves_either_no_process_or_one_that_is_found(fleet: Fleet, milliseconds: int) -> None:
    """No zombie is left, at whatever moment it is canceled."""
    process = None
    with trio.move_on_after(milliseconds / 1000):
        process = await fleet.spawn()
    if process is None:
        assert not fleet.has_children()
        assert await find(fleet.folder) == {}
    else:
        assert {"one": process} == await find(fleet.folder)
