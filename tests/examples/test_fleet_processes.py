"""The fleet's process layer, against real processes, real locks and a real kill -9."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from examples.fleet import launcher, locks, web
from examples.fleet.ports import HOST, healthy, pick_port
from examples.fleet.processes import (
    AlreadyRuns,
    Process,
    SpawnFailed,
    State,
    find,
    forget,
    last_lines,
    spawn,
    stop,
    wait_exit,
)

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {"PATH": os.environ["PATH"]}
SLEEP = ("sleep", "1000")
PATIENCE = 10.0
"""Seconds until a condition that should come true in milliseconds counts as one that never does."""

ENGINE = """
import sys, trio
from examples.fleet.processes import AlreadyRuns, spawn

async def main(folder, uid, *command):
    try:
        process = await spawn(folder, uid, command, {"PATH": "/usr/bin:/bin"}, 7)
        print("started", process.pid, flush=True)
    except AlreadyRuns as error:
        print("refused", error.process.pid, flush=True)
    await trio.sleep_forever()

trio.run(main, *sys.argv[1:])
"""

STUCK = """
import os, signal, sys
from examples.fleet import launcher

os.setsid()
launcher.take(sys.argv[1])
print("locked", flush=True)
signal.pause()
"""


class Fleet:
    """A folder of instances, a fifo on which their commands can say a word, and engines of other processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "run"
        self.fifo = folder / "fifo"
        os.mkfifo(self.fifo)
        # Opened for both, so that neither side waits for the other.
        self._hear = os.open(self.fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._pythons: list[subprocess.Popen[bytes]] = []

    async def spawn(self, uid: str = "one", command: tuple[str, ...] = SLEEP, port: int = 0) -> Process:
        return await spawn(self.folder, uid, command, ENVIRONMENT, port)

    async def spawn_script(self, text: str, uid: str = "one") -> Process:
        """A shell that runs `text`; what it writes to $FIFO can be heard."""
        return await spawn(self.folder, uid, ("sh", "-c", text), ENVIRONMENT | {"FIFO": str(self.fifo)}, 0)

    async def hear(self) -> str:
        with trio.fail_after(PATIENCE):
            await trio.lowlevel.wait_readable(self._hear)
        return os.read(self._hear, 4096).decode().strip()

    def start_engine(self, uid: str, *command: str) -> subprocess.Popen[bytes]:
        """Another engine, that spawns `uid` and then waits to be killed."""
        return self.start_python(ENGINE, str(self.folder), uid, *command)

    def start_python(self, text: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Another Python process; it is killed when the test is over."""
        python = subprocess.Popen([sys.executable, "-c", text, *arguments], cwd=ROOT, stdout=subprocess.PIPE)
        self._pythons.append(python)
        return python

    async def close(self) -> None:
        with trio.CancelScope(shield=True):
            for python in self._pythons:
                python.kill()
                python.communicate()
            for process in (await find(self.folder)).values():
                if process.pid != os.getpid():
                    await stop(process, grace=0)
            os.close(self._hear)
            assert await find(self.folder) == {}


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    await fleet.close()


async def line_of(engine: subprocess.Popen[bytes]) -> list[str]:
    assert engine.stdout is not None
    with trio.fail_after(PATIENCE):
        await trio.lowlevel.wait_readable(engine.stdout)
    return engine.stdout.readline().decode().split()


async def ended(pid: int) -> None:
    """Wait until a process that was forked by one of ours has ended. One that is gone counts."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        with trio.fail_after(PATIENCE):
            await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)


def has_children() -> bool:
    """Whether this process has a child, running or zombie."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def this_process(fleet: Fleet, uid: str) -> Process:
    pid = os.getpid()
    return Process(uid, pid, launcher.start_time(pid), launcher.boot_id(), 7, ("test",), fleet.folder)


def record_of(process: Process) -> bytes:
    fields = ("pid", "start_time", "boot_id", "port", "command")
    return launcher.seal({name: getattr(process, name) for name in fields})


def take_lock(fleet: Fleet, uid: str) -> int:
    """Hold a lock in this process, as a launcher does that has not yet told who it is."""
    fleet.folder.mkdir(mode=0o700, exist_ok=True)
    lock = launcher.take(str(locks.lock_path(fleet.folder, uid)))
    assert lock is not None
    return lock


# --- Starting ----------------------------------------------------------------


async def test_a_process_is_found_as_it_was_spawned(fleet: Fleet) -> None:
    """What spawn returns is what find reads: pid, start time, boot, port and command."""
    process = await fleet.spawn(port=4711)
    assert {"one": process} == await find(fleet.folder)
    assert (process.port, process.command, process.state) == (4711, SLEEP, State.RUNNING)


async def test_a_process_leads_its_own_session_with_nothing_of_the_engine(fleet: Fleet) -> None:
    """It has a session and group of its own, /dev/null, its log, its lock, and no other descriptor."""
    process = await fleet.spawn()
    assert (process.pid, process.pid) == (os.getsid(process.pid), os.getpgid(process.pid))
    files = {os.readlink(f"/proc/{process.pid}/fd/{name}") for name in os.listdir(f"/proc/{process.pid}/fd")}
    assert {os.devnull, str(fleet.folder / "one.log"), str(fleet.folder / "one.lock")} == files


async def test_the_folder_is_for_its_owner_alone(fleet: Fleet) -> None:
    """Nobody else may take a lock, or read a log or a record."""
    await fleet.spawn()
    assert fleet.folder.stat().st_mode == 0o40700
    assert {0o100600} == {path.stat().st_mode for path in fleet.folder.iterdir()}


async def test_output_goes_to_the_log_across_runs(fleet: Fleet) -> None:
    """The log has stdout and stderr of every run, and nothing is overwritten."""
    for word in ("first", "second"):
        await wait_exit(await fleet.spawn_script(f"echo {word}; echo {word} error >&2"))
    assert last_lines(fleet.folder, "one") == ["first", "first error", "second", "second error"]


async def test_the_command_gets_the_given_environment_and_nothing_else(fleet: Fleet) -> None:
    """The engine's own environment does not leak, and neither Python nor the shell of a launcher adds to it."""
    given = {"NAME": "Zoë", "EMPTY": "", "PYTHONHOME": "/nowhere"}
    await wait_exit(await spawn(fleet.folder, "one", ["env"], given, 0))
    assert {f"{name}={value}" for name, value in given.items()} == set(last_lines(fleet.folder, "one"))


async def test_the_command_gets_the_signals_defaults(fleet: Fleet) -> None:
    """Python ignores SIGPIPE; what it starts must not inherit that, nor a blocked signal."""
    await wait_exit(await fleet.spawn(command=("grep", "-E", "Sig(Blk|Ign)", "/proc/self/status")))
    masks = [int(line.split()[1], 16) for line in last_lines(fleet.folder, "one")]
    # The real-time signals are left out: the C library keeps two of them to itself, and ignores them in what it spawns.
    assert [mask & 0x7FFF_FFFF for mask in masks] == [0, 0]


async def test_a_command_that_does_not_exist_fails_by_name(fleet: Fleet) -> None:
    """SpawnFailed names the command, the log says it too, and nothing is left."""
    with pytest.raises(SpawnFailed, match="no-such-command") as failed:
        await fleet.spawn(command=("no-such-command", "x"))
    assert list(failed.value.log) == ["cannot run 'no-such-command': No such file or directory"]
    assert await find(fleet.folder) == {}
    assert not has_children()


async def test_a_command_that_cannot_be_executed_fails_by_name(fleet: Fleet) -> None:
    """A folder is there, but is no program."""
    with pytest.raises(SpawnFailed, match=r"cannot run '/': Permission denied"):
        await fleet.spawn(command=("/",))


async def test_a_folder_that_cannot_be_used_fails_with_its_reason(fleet: Fleet) -> None:
    """A log that can't be opened is told as that, and the command isn't run."""
    (fleet.folder / "one.log").mkdir(parents=True)
    with pytest.raises(SpawnFailed, match="Is a directory"):
        await fleet.spawn()
    assert await find(fleet.folder) == {}


@pytest.mark.parametrize("uid", ["", "../one", "a/b", ".hidden", "a.lock"])
async def test_a_uid_that_is_no_file_name_is_refused(fleet: Fleet, uid: str) -> None:
    """A uid can't reach out of the folder."""
    with pytest.raises(ValueError, match="can't name a lock"):
        await fleet.spawn(uid)


# --- Exactly one -------------------------------------------------------------


async def test_one_of_many_concurrent_spawns_runs(fleet: Fleet) -> None:
    """One call gets the process, every other is told of that very process."""
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


async def test_one_of_two_engines_gets_the_process(fleet: Fleet) -> None:
    """Two engines that want the same instance end up with one process, and both know its pid."""
    engines = [fleet.start_engine("one", *SLEEP) for _ in range(2)]
    said = [await line_of(engine) for engine in engines]
    running = (await find(fleet.folder))["one"]
    assert [["refused", str(running.pid)], ["started", str(running.pid)]] == sorted(said)


async def test_a_launcher_that_is_refused_ends_with_its_exit_code(fleet: Fleet) -> None:
    """A launcher that is run by hand says so too: 75, and nothing was started."""
    await fleet.spawn()
    order = {"folder": str(fleet.folder), "uid": "one", "command": ["touch", str(fleet.folder / "no")], "port": 0}
    arguments = [sys.executable, "-I", "-S", launcher.__file__]
    order_bytes = json.dumps(order | {"environment": ENVIRONMENT}).encode()
    run = await trio.run_process(arguments, stdin=order_bytes, capture_stdout=True, check=False, start_new_session=True)
    assert (run.returncode, run.stdout) == (launcher.LOCK_TAKEN, b"somebody else holds the lock\n")
    assert not (fleet.folder / "no").exists()


async def test_looking_never_makes_a_launcher_lose(fleet: Fleet) -> None:
    """Spawn succeeds while another task does nothing but ask for the locks."""
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


# --- Finding -----------------------------------------------------------------


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


async def test_a_damaged_record_is_a_remnant_and_can_be_stopped(fleet: Fleet) -> None:
    """The lock is held, but nobody can say by whom: stop ends whoever holds it."""
    process = await fleet.spawn()
    locks.lock_path(fleet.folder, "one").write_bytes(b"")
    found = await find(fleet.folder)
    assert (found["one"].state, found["one"].pid) == (State.REMNANT, 0)
    await stop(found["one"], grace=PATIENCE)
    assert not locks.is_alive(process)
    assert await find(fleet.folder) == {}


async def test_forget_leaves_a_living_instance_alone(fleet: Fleet) -> None:
    """The files of an instance go when it is gone, and not before."""
    process = await fleet.spawn()
    assert not forget(fleet.folder, "one")
    await stop(process, grace=PATIENCE)
    assert forget(fleet.folder, "one")
    assert list(fleet.folder.iterdir()) == []


# --- Ends --------------------------------------------------------------------


async def test_a_kill_frees_the_lock_and_is_heard(fleet: Fleet) -> None:
    """kill -9: wait_exit returns with the signal, nothing lives, no zombie is left, and it can start again."""
    process = await fleet.spawn()
    os.kill(process.pid, signal.SIGKILL)
    with trio.fail_after(PATIENCE):
        assert await wait_exit(process) == -signal.SIGKILL
    assert await find(fleet.folder) == {}
    assert not has_children()
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
    os.kill(process.pid, signal.SIGKILL)
    with locks.pinned(process) as pidfd:
        assert pidfd is not None
        await trio.lowlevel.wait_readable(pidfd)
    assert await find(fleet.folder) == {}
    assert not has_children()


# --- Adoption ----------------------------------------------------------------


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
    """Its launcher goes on: whoever spawns next gets a process or is told of one, and there is one."""
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


# --- Stopping ----------------------------------------------------------------


async def test_stop_is_polite_first(fleet: Fleet) -> None:
    """A process that ends on SIGTERM is not killed."""
    process = await fleet.spawn_script("trap 'echo bye; exit' TERM; echo up > $FIFO; while :; do sleep 0.01; done")
    await fleet.hear()
    await stop(process, grace=PATIENCE)
    assert last_lines(fleet.folder, "one") == ["bye"]
    assert not has_children()


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
        "(trap '' TERM; exec sleep 1000 3>&- 4>&- 5>&- 6>&-) & echo $! > $FIFO; exec sleep 1000"
    )
    child = int(await fleet.hear())
    await stop(process, grace=PATIENCE)
    await ended(child)


async def test_a_remnant_is_told_and_can_be_stopped(fleet: Fleet) -> None:
    """What a killed process has forked into another session holds the lock: nothing starts until it is stopped."""
    process = await fleet.spawn_script("setsid sleep 1000 & echo $! > $FIFO; exec sleep 1000")
    child = int(await fleet.hear())
    os.kill(process.pid, signal.SIGKILL)
    await wait_exit(process)
    remnant = (await find(fleet.folder))["one"]
    assert (State.REMNANT, process.pid) == (remnant.state, remnant.pid)
    with pytest.raises(AlreadyRuns, match="remnant"):
        await fleet.spawn()
    await stop(remnant, grace=PATIENCE)
    await ended(child)
    assert await find(fleet.folder) == {}


async def test_stop_touches_neither_a_reused_pid_nor_a_later_run(fleet: Fleet) -> None:
    """A run that is over is stopped by doing nothing, whoever has its pid or its lock now."""
    process = await fleet.spawn()
    with trio.fail_after(PATIENCE):
        await stop(replace(process, start_time=process.start_time - 1), grace=0)
    assert {"one": process} == await find(fleet.folder)


# --- Cancellation ------------------------------------------------------------


@pytest.mark.parametrize("milliseconds", [0, 5, 20, 40, 60])
async def test_a_cancelled_spawn_leaves_nothing_or_a_process(fleet: Fleet, milliseconds: int) -> None:
    """Wherever it is cancelled: either it returned a process that is found, or nothing lives and nothing is to reap."""
    process = None
    with trio.move_on_after(milliseconds / 1000):
        process = await fleet.spawn()
    if process is None:
        assert not has_children()
        assert await find(fleet.folder) == {}
    else:
        assert {"one": process} == await find(fleet.folder)


# --- The program of the fleet ------------------------------------------------


async def test_the_web_program_serves_http_and_ends_at_once(fleet: Fleet) -> None:
    """It answers / and /healthz on its port, is healthy then and not before, and SIGTERM ends it."""
    port = pick_port("one", set())
    assert not await healthy(HOST, port, timeout=1)
    environment = {"PORT": str(port), "NAME": "ada", "GREETING": "Good day"}
    process = await spawn(fleet.folder, "one", [sys.executable, web.__file__], environment, port)
    await becomes_healthy(port)
    assert (200, f"Good day from ada, process {process.pid}\n") == await get(port, "/")
    assert await get(port, "/healthz") == (200, "ok\n")
    assert (await get(port, "/other"))[0] == 404
    os.kill(process.pid, signal.SIGTERM)
    with trio.fail_after(1):
        assert await wait_exit(process) == -signal.SIGTERM


async def becomes_healthy(port: int) -> None:
    with trio.fail_after(PATIENCE):
        while True:
            if await healthy(HOST, port, timeout=1):
                return
            await trio.sleep(0.01)  # a port tells nobody when it is bound


async def get(port: int, path: str) -> tuple[int, str]:
    async with await trio.open_tcp_stream(HOST, port) as stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
        answer = "".join([part.decode() async for part in stream])
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


async def test_a_port_is_chosen_again_unless_it_is_taken() -> None:
    """The same uid gets the same port; one that is listened on, or taken by another instance, is passed over."""
    port = pick_port("one", set())
    assert port == pick_port("one", set())
    assert port != pick_port("one", {port})
    listener = (await trio.open_tcp_listeners(port, host=HOST))[0]
    async with listener:
        assert port != pick_port("one", set())
