"""``python -m catalog.demo.service HOST PORT NAME``: a service that answers each request with its name."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """Answers GET."""

    def do_GET(self) -> None:  # the name is the base class's
        """Answer with the name of the service."""
        body = f"{sys.argv[3]}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


if __name__ == "__main__":
    with ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler) as server:
        print(f"listening on {sys.argv[1]}:{server.server_port}", flush=True)
        server.serve_forever()
