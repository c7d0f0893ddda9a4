"""The supervisor of `headway serve --processes`: it starts the processes, starts those again that die, and ends all."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from typing import NamedTuple, NoReturn

import trio

from headway.base import retry_delay
from headway.cli._exits import Exit, Usage, fail
from headway.cli._log import announce, configure_log
from headway.cli._process_options import ProcessOptions
from headway.cli._reload import at_hangups, hangups
from headway.cli._running import HARD_EXIT, fail_to_serve
from headway.cli._sibling import Sibling, process_name, socket_path
from headway.engine import worker_name
from headway.errors import DeclarationError, HeadwayError
from headway.observe import PAGE, AllPages, PageRequest, PageResponse, ProcessState, serving_pages
from headway.rpc import Address, Channel, address, open_channel, reserve
from headway.storage import names_shared

AFTER_THE_PROCESSES = 2.0
"""Extra seconds in which a process can end itself first: its report has more details."""
_STEADY = 60.0
"""The seconds after which a process counts as healthy, so that its next failure is again the first."""
_LONGEST_DELAY = 30.0
_ANSWERS = 2.0
"""The seconds that a process has to answer for a page."""


class Plan(NamedTuple):
    """The processes to run."""

    processes: int
    listen: Sequence[str]
    options: ProcessOptions


def check_processes(plan: Plan, store: str, listen: Sequence[Address]) -> None:
    """Raise Usage if several processes cannot serve this store at these addresses."""
    option = f"--processes {plan.processes}"
    if not names_shared(store):
        kind = store.partition(":")[0]
        where = "in memory" if kind == "memory" else f"in {store.partition('?')[0]}"
        raise Usage(
            f"{option}: the store {where} belongs to one process. Give --store etcd://... or "
            "postgresql://..., which several processes share, or run controllers in further processes with "
            "`headway work`"
        )
    if sys.platform != "linux":
        raise Usage(f"{option}: only Linux spreads connections to one port over several processes")
    for each in listen:
        if each.path:
            raise Usage(f"{option}: several processes cannot listen on {each}: give TCP addresses, such as 127.0.0.1:0")
    try:
        worker_name(process_name(worker_name(plan.options.process), plan.processes))
    except DeclarationError as error:
        raise Usage(f"--process: {error}") from error


async def supervise(plan: Plan) -> None:
    """Run the processes until canceled."""
    configure_log(plan.options.log)
    name = worker_name(plan.options.process)
    try:
        async with _reserved(plan.listen) as addresses:
            with tempfile.TemporaryDirectory(prefix="headway-") as folder:
                template = Sibling(0, name, plan.processes, addresses, folder, -1, -1)
                group = [_Process(template._replace(number=each + 1), plan) for each in range(plan.processes)]
                await _run(group, plan, name, addresses)
    except OSError as error:
        fail_to_serve(error, metrics=plan.options.metrics)


async def _run(group: Sequence[_Process], plan: Plan, name: str, addresses: Sequence[str]) -> None:
    options = plan.options
    try:
        async with AsyncExitStack() as stack:
            for each in group:
                each.channel = await stack.enter_async_context(open_channel(f"unix:{each.socket}", timeout=_ANSWERS))
            signals = await stack.enter_async_context(hangups())
            nursery = await stack.enter_async_context(trio.open_nursery())

            def reload() -> None:
                for each in group:
                    each.reload()

            nursery.start_soon(at_hangups, signals, reload)
            first, *others = group
            # An app that cannot run is found out by the first process, which alone says so.
            await nursery.start(first.keep)
            async with trio.open_nursery() as starting:
                for each in others:
                    starting.start_soon(nursery.start, each.keep)
            for where in addresses:
                announce(options.log, f"listening on {where}")
            if options.metrics is not None:
                pages = AllPages(lambda: [each.state() for each in group])
                opened = serving_pages(options.metrics, pages, public=options.public_metrics)
                served = await stack.enter_async_context(opened)
                announce(options.log, f"metrics and health at http://{served}/metrics, /healthz and /readyz")
            between = "and" if len(group) == 2 else "to"
            names = f"{process_name(name, 1)} {between} {process_name(name, len(group))}"
            announce(options.log, f"running {len(group)} processes: {names}")
            await trio.sleep_forever()
    finally:
        if any(each.blocked for each in group):
            sys.exit(HARD_EXIT)


@asynccontextmanager
async def _reserved(listen: Sequence[str]) -> AsyncIterator[list[str]]:
    """Keep the ports for the processes while the block runs, and yield the addresses with their actual ports."""
    with ExitStack() as stack:
        found = []
        for each in listen:
            for kept in await reserve(address(each)):
                stack.enter_context(kept)
                host, port, *_ = kept.getsockname()
                found.append(str(Address(host, port, "")))
        yield found


class _Process:
    """One of the processes: it is started again when it ends.

    Attributes:
        channel: a channel to its socket.
        socket: the path of its socket.
        blocked: True if something has blocked its shutdown, so that it had to be killed.
    """

    channel: Channel

    def __init__(self, sibling: Sibling, plan: Plan) -> None:
        self.socket = socket_path(sibling.folder, sibling.number)
        self.blocked = False
        self._sibling = sibling
        self._patience = plan.options.hard_exit + AFTER_THE_PROCESSES
        self._process: trio.Process | None = None
        self._serves = False
        # True if the process must reload its files when it serves. It may have read them before they changed.
        self._reload_due = False
        self._restarts = 0

    async def keep(self, *, task_status: trio.TaskStatus[None]) -> NoReturn:
        """Run the process, and start it again whenever it ends, until canceled.

        If it ends before it has served for the first time, the command fails with the exit code of the process.
        """
        failures, started = 0, False

        def serving() -> None:
            nonlocal started
            self._serves = True
            if self._reload_due:
                self.reload()
            if not started:
                started = True
                task_status.started()

        name = self._sibling.process
        while True:
            began = trio.current_time()
            status = await self._run(serving)
            self._serves = False
            if not started:
                if status > 0:
                    # The process has said why.
                    sys.exit(status)
                fail(Exit.REFUSED, f"Error: process {name} {_ended(status)} before it served")
            if trio.current_time() - began >= _STEADY:
                failures = 0
            delay = retry_delay(failures, _LONGEST_DELAY)
            import structlog

            log = structlog.get_logger("headway")
            log.warning("ProcessEnded", process=name, how=_ended(status), starts_again_in=round(delay, 3))
            failures += 1
            self._restarts += 1
            await trio.sleep(delay)

    async def _run(self, serving: Callable[[], None]) -> int:
        """Run the process once, and return its exit status."""
        with ExitStack() as ours:
            alive, alive_here = os.pipe()
            ours.callback(os.close, alive_here)
            serves_here, serves = os.pipe()
            try:
                sibling = self._sibling._replace(alive=alive, serves=serves)
                reading = trio.lowlevel.FdStream(serves_here)
            except BaseException:
                os.close(serves_here)
                raise

            async def notice() -> None:
                if await reading.receive_some(1):
                    serving()
                    # The end of the stream: the process begins to end, and closes its socket before it has ended.
                    await reading.receive_some(1)
                    self._serves = False

            async with reading, trio.open_nursery() as nursery:
                try:
                    run = partial(
                        trio.run_process,
                        # As this process was started, by whichever way.
                        [sys.executable, *sys.orig_argv[1:]],
                        check=False,
                        deliver_cancel=self._end,
                        pass_fds=(alive, serves),
                        # A terminal sends the signal of Ctrl-C to this process alone, which ends the others.
                        process_group=0,
                        env=os.environ | sibling.variables(),
                    )
                    process: trio.Process = await nursery.start(run)
                finally:
                    # The process has its own copies, and sees the end of this one when ours is the last.
                    os.close(alive)
                    os.close(serves)
                self._process = process
                nursery.start_soon(notice)
                await process.wait()
                nursery.cancel_scope.cancel()
            assert process.returncode is not None
            return process.returncode

    async def _end(self, process: trio.Process) -> None:
        """End the process gracefully. It kills itself if something blocks its shutdown."""
        if process.returncode is not None:
            return
        process.terminate()
        with trio.move_on_after(self._patience):
            await process.wait()
        if process.returncode is None:
            import structlog

            # It cannot say so itself, such as one that is stopped.
            how = f"was killed, because it had not ended within {self._patience:g} s"
            structlog.get_logger("headway").warning("ProcessEnded", process=self._sibling.process, how=how)
            process.kill()
            await process.wait()
        self.blocked |= process.returncode in (HARD_EXIT, -signal.SIGKILL)

    def reload(self) -> None:
        """Make the process reload its files: now if it serves, otherwise as soon as it does.

        Before it serves, the signal would end it.
        """
        self._reload_due = not self._serves
        if self._serves and self._process is not None:
            self._process.send_signal(signal.SIGHUP)

    def state(self) -> ProcessState:
        """Return its state for the pages."""
        return ProcessState(self._sibling.process, self._serves, self._restarts, self._page)

    async def _page(self, path: str) -> PageResponse | None:
        with trio.move_on_after(_ANSWERS):
            try:
                return await self.channel.unary(PAGE, PageRequest(path=path), PageResponse)
            except HeadwayError:
                return None
        return None


def _ended(status: int) -> str:
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"has ended with exit code {status}"
