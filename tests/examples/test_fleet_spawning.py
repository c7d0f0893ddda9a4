"""The fleet's processes start as ordered, each exactly once."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from examples.fleet import launcher
from examples.fleet.processes import (
    AlreadyRuns,
    Process,
    SpawnFailed,
    State,
    find,
    last_lines,
    spawn,
    wait_exit,
)
from tests.examples.fleet_kit import (
    ENVIRONMENT,
    SLEEP,
    Fleet,
    line_of,
)

# --- Starting -------------------------------------------------------------


async def test_find_returns_what_spawn_returned(fleet: Fleet) -> None:
    """The record has pid, start time, boot, port and command."""
    process = await fleet.spawn(port=4711)
    assert {"one": process} == await find(fleet.folder)
    assert (process.port, process.command, process.state) == (4711, SLEEP, State.RUNNING)


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


async def test_folder_is_private_to_its_owner(fleet: Fleet) -> None:
    """No other user may take a lock, or read a log or a record."""
    await fleet.spawn()
    assert fleet.folder.stat().st_mode == 0o40700
    assert {0o100600} == {path.stat().st_mode for path in fleet.folder.iterdir()}


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


async def test_output_of_all_runs_is_appended_to_the_log(fleet: Fleet) -> None:
    """The log has stdout and stderr of every run."""
    for word in ("first", "second"):
        await wait_exit(await fleet.spawn_script(f"echo {word}; echo {word} error >&2"))
    assert last_lines(fleet.folder, "one") == ["first", "first error", "second", "second error"]


async def test_command_gets_only_the_given_environment(fleet: Fleet) -> None:
    """No variable of the engine, or of the launcher's Python or shell, is passed on."""
    given = {"NAME": "Zoë", "EMPTY": "", "PYTHONHOME": "/nowhere"}
    await wait_exit(await spawn(fleet.folder, "one", ["env"], given, 0))
    assert {f"{name}={value}" for name, value in given.items()} == set(last_lines(fleet.folder, "one"))


async def test_command_gets_default_signal_handlers(fleet: Fleet) -> None:
    """Python ignores SIGPIPE, and a shell ignores SIGQUIT for background jobs. Neither is inherited."""
    await wait_exit(await fleet.spawn(command=("grep", "-E", "Sig(Blk|Ign)", "/proc/self/status")))
    masks = [int(line.split()[1], 16) for line in last_lines(fleet.folder, "one")]
    # Real-time signals are left out: the C library reserves two of them, and ignores them in the processes it spawns.
    assert [mask & 0x7FFF_FFFF for mask in masks] == [0, 0]


async def test_missing_command_fails_with_its_name(fleet: Fleet) -> None:
    """SpawnFailed and the log name the command, and nothing is left."""
    with pytest.raises(SpawnFailed, match="no-such-command") as failed:
        await fleet.spawn(command=("no-such-command", "x"))
    assert list(failed.value.log) == ["cannot run 'no-such-command': No such file or directory"]
    assert await find(fleet.folder) == {}
    assert not fleet.has_children()


async def test_command_that_cannot_be_executed_fails_with_its_name(fleet: Fleet) -> None:
    """A folder exists, but is not a program."""
    with pytest.raises(SpawnFailed, match=r"cannot run '/': Permission denied"):
        await fleet.spawn(command=("/",))


async def test_unusable_folder_fails_with_the_reason(fleet: Fleet) -> None:
    """The error is about the log that cannot be opened, and the command is not run."""
    (fleet.folder / "one.log").mkdir(parents=True)
    with pytest.raises(SpawnFailed, match="Is a directory"):
        await fleet.spawn()
    assert await find(fleet.folder) == {}


@pytest.mark.parametrize("uid", ["", "../one", "a/b", ".hidden", "a.lock"])
async def test_uid_that_is_not_a_file_name_is_refused(fleet: Fleet, uid: str) -> None:
    """A uid must not lead out of the folder."""
    with pytest.raises(ValueError, match="can't name a lock"):
        await fleet.spawn(uid)


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


async def test_refused_launcher_exits_with_75(fleet: Fleet) -> None:
    """A launcher that is run by hand starts nothing either."""
    await fleet.spawn()
    order = {"folder": str(fleet.folder), "uid": "one", "command": ["touch", str(fleet.folder / "no")], "port": 0}
    arguments = [sys.executable, "-I", "-S", launcher.__file__]
    order_bytes = json.dumps(order | {"environment": ENVIRONMENT}).encode()
    run = await trio.run_process(arguments, stdin=order_bytes, capture_stdout=True, check=False, start_new_session=True)
    assert (run.returncode, run.stdout) == (launcher.LOCK_TAKEN, b"somebody else holds the lock\n")
    assert not (fleet.folder / "no").exists()


@pytest.mark.wide
async def test_concurrent_find_does_not_prevent_a_spawn(fleet: Fleet) -> None:
    """Another task reads the locks at the same time."""
    async with trio.open_nursery() as nursery:

        async def look() -> None:
            while True:
                await find(fleet.folder)

        nursery.start_soon(look)
        for _ in range(4):
            process = await fleet.spawn()
            os.kill(process.pid, signal.SIGKILL)
            await wait_exit(process)
        nursery.cancel_scope.cancel()


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
