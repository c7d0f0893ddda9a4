"""SIGHUP of a command that runs until it is stopped: it reloads files, and never ends the command."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import trio

from headway.cli._log import tell
from headway.events import CertificateRefused, CertificateRenewed, Report, ignore
from headway.rpc import ServerTls

_STDIN = 0
Hangups = AsyncIterator[int] | None
"""The signals; None on systems without them."""
Files = dict[str, Callable[[], str | None]]
"""Functions that reload files, by the paths of the files. Each returns what the user should know about the content."""


def files_of(tls: ServerTls | None, report: Report = ignore) -> Files:
    """Return the files of a server's TLS context. ``report`` gets what became of them, which the log has anyway."""
    if tls is None:
        return {}

    def renew() -> str | None:
        try:
            tls.renew()
        except OSError as error:
            report(CertificateRefused(tls.certificate, error))
            raise
        report(CertificateRenewed(tls.certificate))
        return tls.problem

    return {tls.certificate: renew}


@contextmanager
def held_hangups() -> Iterator[None]:
    """Hold each SIGHUP of this thread back until `hangups` receives it, or until the block ends.

    Without this, one that arrives during the start, such as while the app is imported, would end the command. With a
    terminal it still does: the terminal may be gone.
    """
    if not hasattr(signal, "SIGHUP") or _has_terminal():
        yield
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


@asynccontextmanager
async def hangups() -> AsyncIterator[Hangups]:
    """Receive SIGHUP during the block. Signals that arrive before they are read are kept."""
    if not hasattr(signal, "SIGHUP"):
        yield None
        return
    with trio.open_signal_receiver(signal.SIGHUP) as signals:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        yield signals


async def at_hangups(signals: Hangups, handle: Callable[[], None]) -> None:
    """Call a function at each signal.

    If a signal came because the terminal of the command is gone, it ends the command, as it ends other programs.
    """
    if signals is None:
        return
    had_terminal = _has_terminal()
    async for _ in signals:
        if had_terminal and not _has_terminal():
            os.kill(os.getpid(), signal.SIGTERM)
            return
        handle()


async def reload_at_hangups(signals: Hangups, files: Files, form: str | None) -> None:
    """Reload the files at each signal, and report the results in the form of the log."""

    def reload() -> None:
        if not files:
            tell(form, "SIGHUP: there is nothing to reload here")
        for path, read in files.items():
            try:
                problem = read()
            except Exception as error:  # noqa: BLE001  # no content of a file may end a running server
                tell(form, f"{error}\n{path}: not reloaded; the previous content stays in effect", warning=True)
            else:
                tell(form, f"{path}: reloaded")
                if problem is not None:
                    tell(form, f"Warning: {problem}", warning=True)

    await at_hangups(signals, reload)


def _has_terminal() -> bool:
    # Of the descriptor: after a hangup, the terminal no longer answers.
    return os.isatty(_STDIN)
