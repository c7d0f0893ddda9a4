"""A proxy in front of the API server, one for each operator's process, that delays, cuts and loses what it carries."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import yaml

from tests.helpers.kube_server import BOB, KubeServer

_HOP = {"connection", "transfer-encoding", "keep-alive", "host", "content-length"}


class Asked(NamedTuple):
    """A call that a process has made: its method, its path without the query, the status of the answer, and when."""

    method: str
    path: str
    status: int
    at: float

    @property
    def is_write(self) -> bool:
        """True for a write of anything but Leases, Events, and the records of kopf's peering."""
        return self.method != "GET" and not re.search("/(leases|events|clusterkopfpeerings)(/|$)", self.path)


class Proxy(ThreadingHTTPServer):
    """The proxy.

    Attributes:
        asked: the calls so far.
        slow: lists and watches of these paths begin at this moment of `time.monotonic`, or later.
        lag: events of watches of these paths come so many seconds later.
        loses: the answers of so many writes to paths that match are lost, after they have been stored.
        cut: True while there is no connection. `end_connections` ends those that exist.
    """

    daemon_threads = True

    def __init__(self, kube: KubeServer, name: str, folder: Path) -> None:
        self.asked: list[Asked] = []
        self.slow, self.lag = ("^$", 0.0), ("^$", 0.0)
        self.loses = ("^$", 0)
        self.cut = False
        self.upstream = urlsplit(kube.url)
        self.trust = ssl.create_default_context(cafile=str(kube.authority_file))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)
        certificate = kube.authority.issue_cert("127.0.0.1")
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(self._context)
        self.config = folder / f"kubeconfig-{name}"
        cluster = {
            "server": f"https://127.0.0.1:{self.server_address[1]}",
            "certificate-authority": str(kube.authority_file),
        }
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": BOB}}],
        }
        self.config.write_text(yaml.safe_dump(content))

    def writes(self, since: float = 0.0) -> list[Asked]:
        """Return the writes since a moment of `time.monotonic`."""
        return [each for each in list(self.asked) if each.is_write and each.at >= since]

    def end_connections(self) -> None:
        """End all connections of the process."""
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def takes_loss(self, method: str, path: str) -> bool:
        """Return True if the answer to a call is to be lost, and count it."""
        with self._lock:
            pattern, left = self.loses
            lost = left > 0 and method != "GET" and re.search(pattern, path) is not None
            if lost:
                self.loses = pattern, left - 1
            return lost

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        """Accept a connection. Its TLS begins in its own thread."""
        plain, address = self.socket.accept()
        wrapped = self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        with self._lock:
            self._open.add(wrapped)
        return wrapped, address

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        """Forget a connection that has ended."""
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that was cut is no error here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def _carry(self) -> None:
        proxy, path = self.server, self.path.partition("?")[0]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        watches = "watch=" in self.path
        pattern, begins = proxy.slow
        if self.command == "GET" and re.search(pattern, path):
            time.sleep(max(0.0, begins - time.monotonic()))
        if proxy.cut:
            self.close_connection = True
            return
        upstream = http.client.HTTPSConnection(
            proxy.upstream.hostname or "", proxy.upstream.port, context=proxy.trust, timeout=None if watches else 60
        )
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        headers["Accept-Encoding"] = "identity"
        try:
            began = time.monotonic()
            upstream.request(self.command, self.path, body or None, headers)
            answer = upstream.getresponse()
            proxy.asked.append(Asked(self.command, path, answer.status, began))
            if watches:
                self._stream(answer, path)
                return
            content = answer.read()
            if proxy.takes_loss(self.command, path):
                self.close_connection = True
                return
            self._head(answer)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            self.close_connection = True
        finally:
            upstream.close()

    def _head(self, answer: http.client.HTTPResponse) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP:
                self.send_header(name, value)

    def _stream(self, answer: http.client.HTTPResponse, path: str) -> None:
        self._head(answer)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        while piece := answer.read1(65_536):
            pattern, seconds = self.server.lag
            if re.search(pattern, path):
                time.sleep(seconds)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *_: object) -> None:
        """Say nothing."""


for _method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
    setattr(_Handler, f"do_{_method}", _Handler._carry)


@contextmanager
def running_proxy(kube: KubeServer, name: str, folder: Path) -> Iterator[Proxy]:
    """Run a proxy until the end of the block."""
    with Proxy(kube, name, folder) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.1})
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
            proxy.end_connections()
