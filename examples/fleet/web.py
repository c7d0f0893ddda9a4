"""
Serve a greeting over HTTP on loopback: the program of which the fleet runs many.

The environment says all: PORT, GREETING ("Hello") and NAME ("nobody"). `/` greets, `/healthz` says ok.
SIGTERM ends it at once, by the signal's default: nothing here is worth finishing.
"""

import os
import socketserver
from http.server import BaseHTTPRequestHandler

GREETING = os.environ.get("GREETING", "Hello")
NAME = os.environ.get("NAME", "nobody")


class Greeter(BaseHTTPRequestHandler):
    """Answers a request."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer one of the two pages."""
        pages = {"/": f"{GREETING} from {NAME}, process {os.getpid()}\n", "/healthz": "ok\n"}
        body = pages.get(self.path.partition("?")[0])
        self.send_response(200 if body else 404)
        content = (body or "not found\n").encode()
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log what people ask for; health checks, many a second, would drown it."""
        if self.path != "/healthz":
            super().log_request(code, size)


class Server(socketserver.ThreadingTCPServer):
    """Not http.server's: that one asks the name service who 127.0.0.1 is before it serves."""

    allow_reuse_address = True  # a process that comes back needs its port at once
    daemon_threads = True


def main() -> None:
    port = int(os.environ["PORT"])
    with Server(("127.0.0.1", port), Greeter) as server:
        print(f"{NAME} serves on http://127.0.0.1:{port}/", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
