"""The state of controllers, read from the metrics pages of their processes."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import trio

from headway.base import plain
from headway.errors import DeclarationError, InvalidArgument, Unavailable
from headway.observe import ControllerState, Sample, states_in

_MOST_BYTES = 64 * 1024 * 1024
_TIMEOUT = 5.0


def page_address(text: str) -> tuple[str, int]:
    """Return host and port of a metrics page: ``HOST:PORT``, or the URL that `serve` prints. Raises InvalidArgument."""
    short = text.removeprefix("http://").removesuffix("/metrics").rstrip("/")
    host, _, port = short.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidArgument(
            f"{text!r} is not an address of a metrics page: write HOST:PORT, such as 127.0.0.1:9090, "
            "as given to `serve --metrics`"
        )
    return host.strip("[]"), int(port)


async def scrape(address: str) -> list[ControllerState]:
    """Return the controllers of the process, or the processes, whose metrics page is at this address.

    A process is named by the address, and one of several by its own name.

    Raises:
        Unavailable: no metrics page answers there within five seconds.
        DeclarationError: the extra `metrics` is not installed.
    """
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError as error:
        raise DeclarationError("`headway top` needs prometheus-client: pip install 'headway[metrics]'") from error
    text = await _get(address)
    found: defaultdict[str, defaultdict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                process = sample.labels.get("process", address)
                found[process][sample.name].append((sample.labels, sample.value))
        return [state for process, samples in found.items() for state in states_in(plain(process), samples)]
    except (ValueError, KeyError, OverflowError) as error:
        raise Unavailable(f"{address} does not answer with the metrics of an engine: {error}") from error


async def _get(address: str) -> str:
    """Return the metrics page. Raises Unavailable."""
    try:
        import h11
    except ImportError as error:
        raise DeclarationError("`headway top` needs h11: pip install 'headway[metrics]'") from error
    host, port = page_address(address)
    try:
        with trio.fail_after(_TIMEOUT):
            stream = await trio.open_tcp_stream(host, port)
            async with stream:
                return await _ask(h11, stream, f"{host}:{port}")
    except trio.TooSlowError as error:
        raise Unavailable(f"no answer from {address} within {_TIMEOUT:g} s") from error
    except (OSError, UnicodeError, trio.BrokenResourceError) as error:
        cause = (isinstance(error, trio.BrokenResourceError) and error.__cause__) or error
        raise Unavailable(
            f"no answer from {address}: {getattr(cause, 'strerror', None) or cause}; is it the address of --metrics?"
        ) from error
    except h11.RemoteProtocolError as error:
        raise Unavailable(f"no HTTP answer from {address}; is it the address of --metrics?") from error


async def _ask(h11: Any, stream: trio.SocketStream, host: str) -> str:
    connection = h11.Connection(h11.CLIENT)
    headers = [("Host", host), ("Connection", "close"), ("Accept", "text/plain")]
    await stream.send_all(connection.send(h11.Request(method="GET", target="/metrics", headers=headers)))
    await stream.send_all(connection.send(h11.EndOfMessage()))
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(65536))
        elif isinstance(event, h11.Response):
            if event.status_code != 200:
                raise Unavailable(f"{host}/metrics answers {event.status_code}: it is not a page of `serve --metrics`")
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > _MOST_BYTES:
                raise Unavailable(f"{host}/metrics answers with more than {_MOST_BYTES} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return body.decode("utf-8", "replace")
