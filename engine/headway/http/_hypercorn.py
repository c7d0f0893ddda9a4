"""The names of Hypercorn and of h11 that the server uses. Only `serve` and `Config` are documented."""

from __future__ import annotations

from headway.base import PrivateNames, check_private_names

HYPERCORN = PrivateNames(
    "hypercorn",
    {
        "hypercorn.config:Config": None,
        "hypercorn.events:Closed": None,
        "hypercorn.events:Event": None,
        "hypercorn.protocol.events:Body": None,
        "hypercorn.protocol:ProtocolWrapper.__init__": (
            "self app config context task_group state ssl client server send alpn_protocol"
        ),
        "hypercorn.protocol.h11:H11Protocol.__init__": (
            "self app config context task_group connection_state ssl client server send"
        ),
        "hypercorn.protocol.h11:H11Protocol._check_protocol": "self event",
        "hypercorn.protocol.h11:H11Protocol._create_stream": "self request",
        "hypercorn.protocol.h11:H11Protocol._send_h11_event": "self event",
        "hypercorn.protocol.h11:H11Protocol._send_error_response": "self status_code",
        "hypercorn.protocol.h11:H11Protocol.handle": "self event",
        "hypercorn.trio.tcp_server:TCPServer.__init__": "self app config context state stream",
        "hypercorn.trio.tcp_server:TCPServer.__await__": "self",
        "hypercorn.trio.tcp_server:TCPServer._read_data": "self",
        "hypercorn.trio.worker_context:WorkerContext.__init__": "self max_requests",
        "hypercorn.typing:ConnectionState": None,
        "hypercorn.typing:H11SendableEvent": None,
        "hypercorn.utils:wrap_app": "app wsgi_max_body_size mode",
    },
)

H11 = PrivateNames(
    "h11",
    {
        "h11._receivebuffer:ReceiveBuffer._extract": "self count",
        "h11._receivebuffer:ReceiveBuffer.maybe_extract_lines": "self",
    },
)


def check_hypercorn() -> None:
    """Check that Hypercorn and h11 are installed, in versions that work.

    Raises:
        ModuleNotFoundError: one of them is not installed.
        ImportError: the version of one lacks a name. The message says which versions work.
    """
    check_private_names(HYPERCORN, H11)
