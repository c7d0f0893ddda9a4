"""A provider of DNS outside the cluster: its client, and the server that stands for it in the example.

Start the server with `python -m examples.kubernetes.dns PORT`.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol

import httpx

Order = tuple[int, int]


class Dns(Protocol):
    """What the operator needs of a provider. A call of a lower order than an earlier one for its key has no effect."""

    async def put(self, key: str, order: Order, host: str) -> None:
        """Let the record of this key be for this host."""

    async def remove(self, key: str, order: Order) -> None:
        """Let there be no record of this key."""


class HttpDns:
    """The client of the server below."""

    def __init__(self, url: str) -> None:
        self._http = httpx.AsyncClient(base_url=url, timeout=5)

    async def put(self, key: str, order: Order, host: str) -> None:
        """Let the record of this key be for this host."""
        await self._send("PUT", key, order, host)

    async def remove(self, key: str, order: Order) -> None:
        """Let there be no record of this key."""
        await self._send("DELETE", key, order, "")

    async def _send(self, method: str, key: str, order: Order, host: str) -> None:
        answer = await self._http.request(method, f"/records/{key}", json={"order": order, "host": host})
        answer.raise_for_status()


class Records:
    """The records of the server, with the highest order of each key, also of a removed one."""

    def __init__(self) -> None:
        self.hosts: dict[str, str] = {}
        self._orders: dict[str, Order] = {}
        self._lock = threading.Lock()

    def change(self, key: str, order: Order | None, host: str) -> None:
        """Let the record of a key be for a host, or for none, unless a call with a higher order was here before."""
        with self._lock:
            if order is not None:
                if order < self._orders.get(key, (0, 0)):
                    return
                self._orders[key] = order
            if host:
                self.hosts[key] = host
            else:
                self.hosts.pop(key, None)


class _Handler(BaseHTTPRequestHandler):
    records = Records()

    def do_GET(self) -> None:
        self._answer(json.dumps(self.records.hosts).encode())

    def do_PUT(self) -> None:
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.records.change(self.path.removeprefix("/records/"), tuple(said["order"]), said["host"])
        self._answer(b"{}")

    def do_DELETE(self) -> None:
        self.do_PUT()

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Handler).serve_forever()
