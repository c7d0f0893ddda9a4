"""SIGHUP of servers: it never ends them, and what they say of it is in the form of their log."""

from __future__ import annotations

import datetime
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
import trustme

from headway.cli import _log, _reload
from headway.cli._running import LastingOutput
from tests.cli.conftest import Started, address_of, interrupt
from tests.helpers.secret_files import write_secret

SERVE = ("serve", "tests.cli.served:app", "--listen", "127.0.0.1:0")
DAY = datetime.timedelta(days=1)


@pytest.mark.wide
def test_access_file_that_has_become_a_pipe_is_not_read(start: Started, tmp_path: Path) -> None:
    """The open would wait for a writer, and the whole server with it."""
    access = tmp_path / "access.yaml"
    write_secret(access, b"policies: []")
    process = start(*SERVE, "--access", "access.yaml")
    address_of(process)
    access.unlink()
    os.mkfifo(access, 0o600)
    process.send_signal(signal.SIGHUP)
    assert process.stderr is not None
    assert process.stderr.readline().startswith(f"{access} is a pipe, a directory or a device now")
    assert process.stderr.readline() == "access.yaml: not reloaded; the previous content stays in effect\n"
    assert interrupt(process) == (0, "", "")


@pytest.mark.parametrize("command", ["serve", "work"])
@pytest.mark.wide
def test_hangup_during_the_import_of_the_app_does_not_end_the_command(
    command: str, start: Started, tmp_path: Path
) -> None:
    """systemd's `reload` sends one as soon as the process exists."""
    imported, goes_on = tmp_path / "imported", tmp_path / "goes_on"
    os.mkfifo(imported)
    os.mkfifo(goes_on)
    lines = (
        f"open({str(imported)!r}, 'w').close()",
        f"open({str(goes_on)!r}).readline()",
        "from tests.cli.served import app",
    )
    (tmp_path / "slow_app.py").write_text("\n".join(lines))
    # For reading as well, so that neither side waits for the other to open it.
    with open(goes_on, "r+b", buffering=0) as told:
        process = start(command, "slow_app:app", *(SERVE[2:] if command == "serve" else ["--server", "127.0.0.1:9"]))
        imported.read_text()
        process.send_signal(signal.SIGHUP)
        told.write(b"\n")
        assert process.stderr is not None
        while process.stderr.readline() != "SIGHUP: there is nothing to reload here\n":
            assert process.poll() is None
        code, _, _ = interrupt(process)
    assert code == 0


@pytest.mark.wide
def test_json_log_has_every_line_of_a_server_with_an_expired_certificate(start: Started, tmp_path: Path) -> None:
    """It starts, and warns: it may be renewed while the server runs. A file that is no certificate changes nothing."""
    now = datetime.datetime.now(datetime.UTC)
    issued = trustme.CA().issue_cert("127.0.0.1", not_before=now - 2 * DAY, not_after=now - DAY)
    write_secret(tmp_path / "server.pem", issued.private_key_and_cert_chain_pem.bytes())
    process = start(*SERVE, "--tls-certificate", "server.pem", "--log", "json")
    assert process.stdout is not None

    def said() -> dict[str, Any]:
        assert process.stdout is not None
        found: dict[str, Any] = json.loads(process.stdout.readline())
        return found

    expired = f"server.pem: its certificate expired on {now - DAY:%Y-%m-%d %H:%M} UTC, so clients refuse it: renew it"
    warned, listening = said(), said()
    assert (warned["event"], warned["level"]) == (f"--tls-certificate {expired}", "warning")
    assert listening["event"].startswith("listening on ")
    process.send_signal(signal.SIGHUP)
    assert [(each["event"], each["level"]) for each in (said(), said())] == [
        ("server.pem: reloaded", "info"),
        (expired, "warning"),
    ]
    (tmp_path / "server.pem").write_text("hello")
    process.send_signal(signal.SIGHUP)
    refused = said()
    assert refused["level"] == "warning"
    why, kept = refused["event"].splitlines()
    assert why == f"{tmp_path}/server.pem: no certificate in PEM form: the file must have -----BEGIN CERTIFICATE-----"
    assert kept == "server.pem: not reloaded; the previous content stays in effect"
    assert interrupt(process) == (0, "", "")


async def test_hangup_of_a_closed_terminal_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the command would go on unseen, and keep its store."""
    there = True
    ended: list[tuple[int, int]] = []
    handled: list[bool] = []
    monkeypatch.setattr(_reload, "_has_terminal", lambda: there)
    async with trio.open_nursery() as nursery, _reload.hangups() as signals:
        nursery.start_soon(_reload.at_hangups, signals, lambda: handled.append(there))
        await trio.testing.wait_all_tasks_blocked()
        os.kill(os.getpid(), signal.SIGHUP)
        await trio.testing.wait_all_tasks_blocked()
        assert handled == [True]
        monkeypatch.setattr(os, "kill", lambda *given: ended.append(given))
        there = False
        signal.raise_signal(signal.SIGHUP)
        await trio.testing.wait_all_tasks_blocked()
    assert handled == [True]
    assert ended == [(os.getpid(), signal.SIGTERM)]


def test_lost_lines_of_a_json_log_are_reported_as_json() -> None:
    """The pipe is full, and is then read."""
    reading, writing = os.pipe()
    try:
        with open(writing, "w", encoding="utf-8", closefd=False) as stream:
            output = LastingOutput(stream, writing)
            output.loss = _log._json_loss
            while not output._lost:
                output.write(f"{'{}':>1000}\n")
            while os.read(reading, 1 << 20):
                output.write("{}\n")
                if not output._lost:
                    break
            lines = os.read(reading, 1 << 20).decode().splitlines()
    finally:
        os.close(reading)
        os.close(writing)
    lost = json.loads(lines[0])
    assert lost["event"].endswith("lost, because nothing read the output")
    assert (lost["level"], lines[1]) == ("warning", "{}")
