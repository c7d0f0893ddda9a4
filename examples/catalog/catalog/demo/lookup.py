"""Asking a DNS server for the addresses of a name."""

from __future__ import annotations

import shutil
import subprocess
from typing import NamedTuple

import dns.asyncquery
import dns.exception
import dns.message
import dns.rcode
import trio

HOST = "127.0.0.1"


class Found(NamedTuple):
    """An answer.

    Attributes:
        result: the name of the result, such as NOERROR; empty if no answer came in time.
        addresses: the addresses, sorted.
    """

    result: str
    addresses: tuple[str, ...]


async def look_up(port: int, name: str, *, timeout: float = 1.0) -> Found:
    """Ask for the addresses of a name over UDP, and over TCP if the answer was cut."""
    question = dns.message.make_query(name, "A")
    try:
        answer, _ = await dns.asyncquery.udp_with_fallback(question, HOST, port=port, timeout=timeout)
    except (dns.exception.DNSException, OSError, trio.BrokenResourceError, EOFError):
        return Found("", ())
    addresses = sorted(str(each) for group in answer.answer for each in group)
    return Found(dns.rcode.to_text(answer.rcode()), tuple(addresses))


async def show(port: int, name: str) -> str:
    """Return the output for a person: a command and its answer by dig, or an answer by `look_up` without dig."""
    command = ["dig", f"@{HOST}", "-p", str(port), name, "+short"]
    if shutil.which("dig") is None:
        answer = " ".join((await look_up(port, name)).addresses)
        return f"(without dig) {name}: {answer or 'nothing'}"
    result = await trio.run_process(command, capture_stdout=True, stdin=subprocess.DEVNULL, check=False)
    return f"$ {' '.join(command)}\n{result.stdout.decode().strip()}"
