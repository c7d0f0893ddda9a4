"""h2 makes a text of each frame that it receives, for its log. A text of the data would cost more than the data."""

from __future__ import annotations

from typing import Any, cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived

from headway.rpc import WireLimits
from headway.rpc.http2 import CountingH2, FrameAccount, h2_configuration


class Noted:
    """A log of h2 that notes the texts of the frames."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def debug(self, *_: object) -> None:
        pass

    def trace(self, text: str, *given: object) -> None:
        self.texts.append(text % given)


def test_data_is_received_without_a_text_of_it() -> None:
    configuration, noted = h2_configuration(client_side=False), Noted()
    configuration.logger = cast("Any", noted)
    server = CountingH2(configuration, WireLimits(), FrameAccount(WireLimits(), 0.0, client_side=False))
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    headers = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "a")]
    client.send_headers(1, headers)
    client.send_data(1, b"x" * 16_000, end_stream=True)
    received: list[Any] = server.receive_data(client.data_to_send())
    assert [len(each.data) for each in received if isinstance(each, DataReceived)] == [16_000]
    texts = [each for each in noted.texts if each.startswith("Received frame")]
    assert texts[-1] == "Received frame: DataFrame(stream_id=1, 16000 bytes)"
