"""One check: an HTTP request, a TCP connection or a command, and its result. It never raises, and ends in time."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from typing import NamedTuple

import httpx
import trio

from catalog.messages import Health, HTTPCheck, TCPCheck
from catalog.registrar.definitions import Check, CommandCheck

_LONGEST_OUTPUT = 4_096
_TOO_MANY_REQUESTS = 429


class Result(NamedTuple):
    """The result of a check."""

    health: Health
    output: str


async def run(check: Check) -> Result:
    """Make a check."""
    with trio.move_on_after(check.timeout):
        try:
            if isinstance(check.probe, HTTPCheck):
                return await _http(check.probe)
            if isinstance(check.probe, TCPCheck):
                return await _tcp(check.probe)
            return await _command(check.probe)
        except (OSError, ValueError, httpx.HTTPError, httpx.InvalidURL) as error:
            return Result(Health.HEALTH_CRITICAL, _short(f"{type(error).__name__}: {error}"))
    return Result(Health.HEALTH_CRITICAL, f"it has not answered within {check.timeout:g} s")


def kind_of(check: Check) -> str:
    """Return the type of a check, as it stands in a HealthStatus."""
    if isinstance(check.probe, HTTPCheck):
        return "http"
    return "tcp" if isinstance(check.probe, TCPCheck) else "command"


async def _http(probe: HTTPCheck) -> Result:
    """Pass with a status of 2xx, and warn with 429."""
    tls = probe.tls
    extensions = {"sni_hostname": tls.tls_server_name} if tls is not None and tls.tls_server_name else {}
    verify = tls is None or not tls.tls_skip_verify
    # A proxy of the environment is not for local processes.
    async with httpx.AsyncClient(verify=verify, timeout=None, trust_env=False) as client:
        request = client.build_request(
            probe.method or "GET", probe.url, headers=probe.header, content=probe.body or None, extensions=extensions
        )
        # Without the bodies, which may be endless. httpx reads those of redirects if it follows them itself.
        response = await client.send(request, stream=True)
        await response.aclose()
        redirects = 0
        while response.next_request is not None and not probe.disable_redirects:
            redirects += 1
            if redirects > client.max_redirects:
                raise httpx.TooManyRedirects(f"more than {client.max_redirects} redirects")
            response = await client.send(response.next_request, stream=True)
            await response.aclose()
    text = f"HTTP {response.status_code} {response.reason_phrase}"
    if response.is_success:
        return Result(Health.HEALTH_PASSING, text)
    warns = response.status_code == _TOO_MANY_REQUESTS
    return Result(Health.HEALTH_WARNING if warns else Health.HEALTH_CRITICAL, text)


async def _tcp(probe: TCPCheck) -> Result:
    host, _, port = probe.address.rpartition(":")
    async with await trio.open_tcp_stream(host.strip("[]"), int(port)):
        return Result(Health.HEALTH_PASSING, "connected")


async def _command(probe: CommandCheck) -> Result:
    """Run a command in a process group of its own, which ends with the check."""
    process = await trio.lowlevel.open_process(
        probe.command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    output = bytearray()
    try:
        assert process.stdout is not None
        async with process.stdout as stream:
            async for piece in stream:
                output += piece[: _LONGEST_OUTPUT - len(output)]
        status = await process.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with trio.CancelScope(shield=True):
            await process.wait()
    health = {0: Health.HEALTH_PASSING, 1: Health.HEALTH_WARNING}.get(status, Health.HEALTH_CRITICAL)
    return Result(health, _short(f"exit status {status}: {output.decode(errors='replace').strip()}"))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_OUTPUT else text[: _LONGEST_OUTPUT - 1] + "…"
