"""Choose ports on loopback, and ask whether somebody answers on one."""

import socket
import zlib

import trio

HOST = "127.0.0.1"

PORTS = range(20_000, 30_000)
"""Below the ports that Linux hands out by itself (from 32768): there, a port that was free when we chose it
could be the near end of somebody's connection by the time the process binds it."""


class NoFreePort(Exception):
    """All ports of the range are taken."""


def pick_port(uid: str, taken: set[int], ports: range = PORTS) -> int:
    """
    A port for an instance: the same one for the same uid as long as it is free, not in `taken`, and
    bindable now.

    Nothing reserves it. Record it before it is used, and give what is recorded as `taken` to the next call.
    """
    first = zlib.crc32(uid.encode()) % len(ports)
    for offset in range(len(ports)):
        port = ports[(first + offset) % len(ports)]
        if port not in taken and _is_bindable(port):
            return port
    raise NoFreePort(f"no port from {ports.start} to {ports.stop - 1} is free")


def _is_bindable(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: without it, a port would count as taken for the minute after its last connection.
        # On Linux it doesn't let us share the port of somebody who listens.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


async def healthy(host: str, port: int, timeout: float) -> bool:
    """Whether a TCP connection can be made within `timeout` seconds. Cancelled: no connection is left open."""
    with trio.move_on_after(timeout):
        try:
            stream = await trio.open_tcp_stream(host, port)
        except OSError:
            return False
        async with stream:
            # A connection attempt to a port that nobody listens on can meet itself, if it starts from that
            # very port.
            return bool(stream.socket.getsockname() != stream.socket.getpeername())
    return False
