"""Run the function of a command: its exit codes, its errors on stderr, its signals, its streams, and its end."""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import trio

from headway.api import exit_of
from headway.base import Output, only_error, say
from headway.cli._exits import Exit, fail
from headway.errors import HeadwayError, ManifestError
from headway.events import ignore

if TYPE_CHECKING:
    from headway.engine import ShutdownWatch

_AFTER_THE_ENGINE = 0.5
"""Extra seconds in which an engine can end the process first: its report has more details."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

# Characters per write: in UTF-8 at most 4,096 bytes, for which a pipe that is ready has room.
_AT_ONCE = 1024
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The errors of a disk that may have space again."""


def fail_by(error: HeadwayError) -> NoReturn:
    """Print an error to stderr, and exit with its code."""
    if isinstance(error, ManifestError):
        # Without a prefix: every line starts with its place, like the messages of compilers.
        fail(Exit.MANIFEST, str(error))
    fail(code_of(error), f"Error: {error}")


def fail_to_serve(error: Exception, *, http: str | None = None, metrics: str | None = None) -> NoReturn:
    """Print why a server cannot run, and exit. An address that cannot be bound is named with its option."""
    text = str(error)
    if isinstance(error, OSError) and (error.strerror or "").startswith("cannot listen on "):
        text = str(error.strerror)
        given = {"--http": http, "--metrics": metrics}
        option = next((name for name, at in given.items() if text.startswith(f"cannot listen on {at}:")), "--listen")
        text = f"{option}: {text}"
    fail(Exit.REFUSED, f"Error: {text}")


def code_of(error: HeadwayError) -> Exit:
    """Return the exit code for an error."""
    return Exit(exit_of(type(error)))


def run(
    function: Callable[[], Awaitable[None]], *, interrupted: Exit = Exit.INTERRUPTED, hard_exit: float | None = None
) -> None:
    """Run a function under Trio. SIGINT and SIGTERM cancel it, and then the command exits with ``interrupted``.

    The function has been unwound before the exit, so that stores and connections are closed.

    Args:
        hard_exit: for a server, the seconds from the signal until the process is ended. The stack of the task that
            blocks it is written to standard error. A server also keeps running without its standard streams. None if
            the command is not a server.
    """
    with ending():
        canceled = start(function, hard_exit)
    if canceled:
        sys.exit(interrupted)


def start(function: Callable[[], Awaitable[None]], hard_exit: float | None) -> bool:
    """Run a function under Trio until it returns or a signal cancels it. Return True if it was canceled."""
    if hard_exit is not None:
        _keep_standard_streams()
    if not gc.isenabled():
        # `__main__.py` has turned collection off. Without the first line, the first pass would traverse all modules.
        gc.freeze()
        gc.enable()
    return trio.run(_until_interrupted, function, hard_exit)


@contextmanager
def ending() -> Iterator[None]:
    """Report an exception of the command's function in one sentence, and exit with its code."""
    try:
        yield
    except (HeadwayError, BaseExceptionGroup) as error:
        only = only_error(error)
        if isinstance(only, HeadwayError):
            fail_by(only)
        raise only from only.__cause__


async def _until_interrupted(function: Callable[[], Awaitable[None]], hard_exit: float | None) -> bool:
    interrupted = False

    async def cancel_at_signal(task_status: trio.TaskStatus[None]) -> None:
        nonlocal interrupted
        due, early = 0.0, list[int]()

        def note(number: int, _: FrameType | None) -> None:
            early.append(number)

        # The receiver puts them back when it ends, so a later signal does not end the process.
        before = {} if watch is None else {each: signal.signal(each, note) for each in _SIGNALS}
        try:
            with trio.open_signal_receiver(*_SIGNALS) as signals:
                if watch is not None:
                    _begin_at_signal(watch)
                task_status.started()
                for each in early:
                    signal.raise_signal(each)
                async for _ in signals:
                    if not interrupted:
                        due = trio.current_time() + bound
                    interrupted = True
                    nursery.cancel_scope.cancel()
                    if watch is None:
                        return
        finally:
            if interrupted and watch is not None:
                # Nothing else would end the process if a thread does not end.
                leave_within(due - trio.current_time(), bound)
            else:
                for number, handler in before.items():
                    signal.signal(number, handler)

    watch: ShutdownWatch | None = None
    bound = 0.0 if hard_exit is None else hard_exit + _AFTER_THE_ENGINE
    try:
        # Of its own nursery, so that the signals of a server are received until it has ended: by default, a second
        # SIGTERM would kill it in the middle of its shutdown. A command without a limit for that can be killed so.
        async with trio.open_nursery() as receiving:
            async with trio.open_nursery() as nursery:
                if hard_exit is not None:
                    # Imported here, because only a server has an engine.
                    from headway.engine import ShutdownWatch

                    watch = ShutdownWatch(nursery, ignore, bound=bound, hard_exit=bound)
                await receiving.start(cancel_at_signal)
                await function()
            receiving.cancel_scope.cancel()
    finally:
        if watch is not None:
            watch.end()
    return interrupted


def _begin_at_signal(watch: ShutdownWatch) -> None:
    """Start the shutdown watchdog in Python's own signal handlers.

    Trio handles a signal in the next turn of its scheduler, which never comes while a task spins. Python runs a signal
    handler in the middle of that task.
    """
    for number in _SIGNALS:
        signal.signal(number, partial(_signaled, watch, signal.getsignal(number)))


def _signaled(watch: ShutdownWatch, trio_handler: Any, number: int, frame: FrameType | None) -> None:
    watch.begin()
    trio_handler(number, frame)


async def read_stdin(*, line_of: int | None = None) -> bytes:
    """Return the whole standard input, or only its first line, of at most ``line_of`` bytes.

    Signals are handled while nothing arrives. A read that is abandoned then stays in its thread until the process ends.
    """
    buffer = sys.stdin.buffer
    # A raw stream has no lock that an abandoned read could hold when the interpreter ends.
    stream = getattr(buffer, "raw", buffer)
    given = bytearray()
    while line_of is None or (b"\n" not in given and len(given) < line_of):
        read = await trio.to_thread.run_sync(stream.read, 65536, abandon_on_cancel=True)
        if read == b"":
            break
        if read is None:
            # Its descriptor does not block.
            await trio.lowlevel.wait_readable(stream.fileno())
        else:
            given += read
    return bytes(given) if line_of is None else bytes(given).partition(b"\n")[0][:line_of]


def _keep_standard_streams() -> None:
    """Make writes to standard output and standard error succeed without blocking, for the life of the process.

    Output that cannot be written is dropped. A closed descriptor is opened on the null device. Otherwise a file of the
    store would get its number, and stray output would be written to that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # This opens the lowest free number, which is this one: the lower ones are open.
            os.open(os.devnull, os.O_RDWR)
        if name != "stdin":
            stream = getattr(sys, name) or open(number, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # for good
            setattr(sys, name, LastingOutput(stream, number))


class LastingOutput:
    """A text stream that never blocks its writer.

    While its reader does not read, or its disk is full, output is dropped; the next line that can be written reports
    how many lines were lost. After any other error it is redirected to the null device.

    Args:
        stream: the stream of a descriptor.
        number: the descriptor.

    Attributes:
        loss: returns the form of the sentence that reports lost lines.
    """

    loss: Callable[[str], str] = staticmethod(str)

    def __init__(self, stream: Any, number: int) -> None:
        self._stream = stream
        self._number = number
        self._lost = 0
        self._why = ""
        self._in_line = False
        self._output = Output(number)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write the text, or drop it."""
        given: object = text
        if not isinstance(given, str):
            # Click tests whether a stream accepts bytes.
            raise TypeError(f"expected str, got {type(given).__name__}")
        for at in range(0, len(text), _AT_ONCE):
            if not (self._reports_loss() and self._accepts(text[at : at + _AT_ONCE])):
                self._lost += max(text.count("\n", at), 1)
                break
        return len(text)

    def _reports_loss(self) -> bool:
        if self._lost:
            lines = "1 line of output was" if self._lost == 1 else f"{self._lost} lines of output were"
            # A file may have taken a part of the line before.
            begin = "\n" if self._in_line else ""
            if self._accepts(f"{begin}{self.loss(f'{lines} lost, because {self._why}')}\n"):
                self._lost = 0
        return not self._lost

    def _accepts(self, text: str) -> bool:
        data = text.encode(self._stream.encoding or "utf-8", "replace")
        self._why = "nothing read the output"
        try:
            written = self._output.write(data)
        except OSError as error:
            if error.errno not in _FULL:
                self._lose()
                return True
            self._why = f"they could not be written: {error.strerror}"
            return False
        if written:
            self._in_line = data[written - 1 : written] != b"\n"
        return written == len(data)

    def flush(self) -> None:
        """Do nothing: every write is flushed immediately."""

    def _lose(self) -> None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._number)
        os.close(null)
        self._output.close()
        self._output = Output(self._number)


HARD_EXIT = 70
"""The exit code of a server that received a signal to stop, but that something blocked."""


def leave_within(seconds: float, bound: float) -> None:
    """End the process with HARD_EXIT if Python has not ended it after this many seconds. Further signals do nothing.

    Args:
        bound: the seconds since the first signal after which that will be.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_leave, args=(seconds, bound), name="headway exit", daemon=True).start()


def _leave(seconds: float, bound: float) -> None:
    time.sleep(max(seconds, 0.0))
    main = threading.main_thread()
    waited_for = [each for each in threading.enumerate() if not each.daemon and each is not main]
    for each in waited_for or [main]:
        frame = None if each.ident is None else sys._current_frames().get(each.ident)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        say(f"thread {each.name} has not ended within {bound:g} s of the start of the shutdown:\n{stack}")
    os._exit(HARD_EXIT)
