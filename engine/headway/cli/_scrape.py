"""The state of controllers, read from the metrics pages of their processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

from headway.base import plain
from headway.errors import DeclarationError, InvalidArgument, Unavailable

_MOST_BYTES = 64 * 1024 * 1024
_TIMEOUT = 5.0

_ONCE: dict[str, tuple[str, Callable[[float], object]]] = {
    "headway_controller_ready": ("ready", bool),
    "headway_controller_phase_seconds": ("seconds", float),
    "headway_queue_oldest_seconds": ("oldest", float),
    "headway_keys_not_done": ("not_done", int),
    "headway_controller_restarts_total": ("restarts", int),
}
"""The metrics that a controller has once, with their names and types here."""

_STATES = {"ready": "queued", "in hand": "running", "resting": "resting", "scheduled": "scheduled"}
_FAILURES = ("failed", "permanent")

Sample = tuple[Mapping[str, str], float]
"""The labels and the value of a sample."""


@dataclass
class ControllerState:
    """A controller of a process, at one scrape.

    Attributes:
        rate: reconciles a second since the scrape before; None at the first one.
        failures: failed reconciles a second; None at the first scrape.
        queued: keys that are ready; ``running``, ``resting`` and ``scheduled`` are the other states of keys.
        lag: revisions by which its slowest type is behind.
    """

    process: str
    name: str
    phase: str = ""
    seconds: float = 0.0
    ready: bool = False
    rate: float | None = None
    failures: float | None = None
    queued: int = 0
    running: int = 0
    resting: int = 0
    scheduled: int = 0
    not_done: int = 0
    oldest: float = 0.0
    restarts: int = 0
    lag: int = 0
    resources: int = 0
    types: int = 0
    primed: int = 0
    reconciles: Mapping[str, int] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """The phase in words. While it primes, also how far it is."""
        if self.phase == "priming":
            return f"priming {self.primed} of {self.types} types"
        return self.phase if self.ready else f"{self.phase}, not ready"

    def rates_since(self, before: ControllerState, seconds: float) -> None:
        """Set the rates from what was counted before."""
        # A process that has started again counts from 0.
        gained = {key: max(count - before.reconciles.get(key, 0), 0) for key, count in self.reconciles.items()}
        self.rate = sum(gained.values()) / seconds
        self.failures = sum(gained.get(each, 0) for each in _FAILURES) / seconds


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
    """Return the controllers of the process whose metrics page is at this address.

    Raises:
        Unavailable: no metrics page answers there within five seconds.
        DeclarationError: the extra `metrics` is not installed.
    """
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError as error:
        raise DeclarationError("`headway top` needs prometheus-client: pip install 'headway[metrics]'") from error
    text = await _get(address)
    found: defaultdict[str, list[Sample]] = defaultdict(list)
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found[sample.name].append((sample.labels, sample.value))
        return list(controllers(address, found))
    except (ValueError, KeyError, OverflowError) as error:
        raise Unavailable(f"{address} does not answer with the metrics of an engine: {error}") from error


def controllers(process: str, samples: Mapping[str, list[Sample]]) -> Iterator[ControllerState]:
    """Yield the controllers in the samples of a page."""

    def of(metric: str) -> Iterator[tuple[ControllerState, Mapping[str, str], float]]:
        for labels, value in samples.get(metric, ()):
            if labels.get("controller") in states:
                yield states[labels["controller"]], labels, value

    states = {
        labels["controller"]: ControllerState(process, plain(labels["controller"]))
        for labels, _ in samples.get("headway_controller_ready", ())
    }
    for metric, (name, kind) in _ONCE.items():
        for state, _, value in of(metric):
            setattr(state, name, kind(value))
    for state, labels, value in of("headway_controller_phase"):
        if value:
            state.phase = plain(labels["phase"])
    for state, labels, value in of("headway_queue_keys"):
        if labels["state"] in _STATES:
            setattr(state, _STATES[labels["state"]], int(value))
    for state, labels, value in of("headway_reconcile_total"):
        state.reconciles = {**state.reconciles, labels["outcome"]: int(value)}
    for state, _, value in of("headway_cache_lag_revisions"):
        state.lag = max(state.lag, int(value))
    for state, _, value in of("headway_cache_resources"):
        state.resources += int(value)
    for state, _, value in of("headway_cache_primed"):
        state.types += 1
        state.primed += int(value)
    yield from sorted(states.values(), key=lambda state: state.name)


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
    except OSError as error:
        raise Unavailable(
            f"no answer from {address}: {error.strerror or error}; is it the address of --metrics?"
        ) from error
    except h11.RemoteProtocolError as error:
        raise Unavailable(f"{address} does not speak HTTP: {error}") from error


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
