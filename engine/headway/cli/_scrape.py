"""The state of controllers, read from the metrics pages of their processes."""

from __future__ import annotations

from collections import defaultdict

import trio

from headway.base import GetFailed, http_get, plain
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
        import h11  # noqa: F401  # for the page
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError as error:
        raise DeclarationError(f"`headway top` needs {error.name}: pip install 'headway[metrics]'") from error
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
    host, port = page_address(address)
    try:
        with trio.fail_after(_TIMEOUT):
            page = await http_get(
                (host, port),
                "/metrics",
                authority=f"{host}:{port}",
                accept="text/plain",
                most_bytes=_MOST_BYTES,
            )
    except trio.TooSlowError as error:
        raise Unavailable(f"no answer from {address} within {_TIMEOUT:g} s") from error
    except GetFailed as error:
        raise Unavailable(f"no metrics from {address}: {error}; is it the address of --metrics?") from error
    return page.decode("utf-8", "replace")
