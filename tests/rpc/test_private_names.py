"""The private names of grpclib and h2 that `rpc` uses all exist and are unchanged."""

from __future__ import annotations

import inspect
import sys
from asyncio import sslproto
from importlib.metadata import version
from typing import Any

import hpack
import pytest
from grpclib import config, events, metadata, protocol, server
from h2 import config as config_of_h2
from h2 import connection, frame_buffer, settings, stream, windows
from hyperframe.frame import GoAwayFrame

from headway.rpc import WireLimits
from headway.rpc.http2._frames import FrameAccount
from headway.rpc.http2._h2 import CountingH2, h2_configuration


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_library_versions_are_the_reviewed_ones() -> None:
    """Review a new version first: the parts that are extended may have changed."""
    assert version("grpclib").startswith("0.4.")
    assert version("h2").startswith("4.")
    assert version("hyperframe").startswith("6.")
    assert version("hpack").startswith("4.")


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (protocol.Buffer.eof, ["self"]),
        (protocol.Connection.__init__, ["self", "connection", "transport", "config"]),
        (protocol.Connection.ack, ["self", "stream_id", "size"]),
        (protocol.Connection.close, ["self"]),
        (protocol.Connection.create_stream, ["self", "stream_id", "wrapper"]),
        (protocol.Connection.flush, ["self"]),
        (protocol.Connection.initialize, ["self"]),
        (protocol.Connection.is_closing, ["self"]),
        (protocol.Stream.__init__, ["self", "connection", "h2_connection", "transport", "stream_id", "wrapper"]),
        (protocol.Stream.__terminated__, ["self", "reason"]),
        (protocol.Stream.init_stream, ["self", "stream_id", "connection"]),
        (protocol.Stream.reset_nowait, ["self", "error_code"]),
        (protocol.EventsProcessor.register, ["self", "stream"]),
        (protocol.EventsProcessor.process_connection_terminated, ["self", "event"]),
        (protocol.Stream.send_headers, ["self", "headers", "end_stream"]),
        (protocol.Stream.send_data, ["self", "data", "end_stream"]),
        (protocol.EventsProcessor.__init__, ["self", "handler", "connection"]),
        (protocol.EventsProcessor.close, ["self", "reason"]),
        (protocol.EventsProcessor.process, ["self", "event"]),
        (protocol.EventsProcessor.process_request_received, ["self", "event"]),
        (protocol.EventsProcessor.process_window_updated, ["self", "event"]),
        (protocol.EventsProcessor.process_remote_settings_changed, ["self", "event"]),
        (protocol.EventsProcessor.process_stream_reset, ["self", "event"]),
        (protocol.H2Protocol.__init__, ["self", "handler", "config", "h2_config"]),
        (protocol.H2Protocol.connection_made, ["self", "transport"]),
        (protocol.H2Protocol.data_received, ["self", "data"]),
        (protocol.H2Protocol.connection_lost, ["self", "exc"]),
        (protocol.AbstractHandler.accept, ["self", "stream", "headers", "release_stream"]),
        (protocol.AbstractHandler.cancel, ["self", "stream"]),
        (protocol.AbstractHandler.close, ["self"]),
        (config.Configuration.__for_server__, ["self"]),
        (config.Configuration.__for_client__, ["self"]),
        (server.Stream.send_initial_metadata, ["self", "metadata"]),
        (
            server.Stream.send_trailing_metadata,
            ["self", "status", "status_message", "status_details", "metadata"],
        ),
        (metadata.Deadline.from_headers, ["headers"]),
        (metadata.decode_metadata, ["headers"]),
        (metadata.encode_metadata, ["metadata"]),
        (metadata.encode_timeout, ["timeout"]),
        (metadata.decode_grpc_message, ["value"]),
        (connection.H2Connection.initiate_connection, ["self"]),
        (connection.H2Connection.send_data, ["self", "stream_id", "data", "end_stream", "pad_length"]),
        (hpack.Decoder.decode, ["self", "data", "raw"]),
        (hpack.Decoder._update_encoding_context, ["self", "data"]),
        (protocol.EventsProcessor.process_data_received, ["self", "event"]),
        (protocol.EventsProcessor.process_response_received, ["self", "event"]),
        (protocol.EventsProcessor.process_trailers_received, ["self", "event"]),
        (settings.Settings.__init__, ["self", "client", "initial_values"]),
    ],
)
def test_functions_have_the_expected_parameters(function: Any, expected: list[str]) -> None:
    """An override with other parameters would not be called like grpclib's."""
    assert parameters(function) == expected


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (protocol.Connection.__init__, ["_connection", "_transport", "write_ready", "stream_close_waiter"]),
        (
            protocol.Stream.__init__,
            [
                "_h2_connection",
                "_transport",
                "window_updated",
                "headers_received",
                "trailers_received",
                "headers",
                "trailers",
            ],
        ),
        (protocol.Stream.init_stream, ["buffer"]),
        (connection.H2Connection._prepare_for_sending, ["_data_to_send"]),
        (connection.H2Connection._open_streams, ["streams", "_closed_streams", "closed_by"]),
        (
            connection.H2Connection._receive_data_frame,
            ["_inbound_flow_control_window_manager", "window_consumed", "state_machine"],
        ),
        (connection.H2Connection._receive_window_update_frame, ["outbound_flow_control_window"]),
        (stream.H2Stream.receive_data, ["_inbound_window_manager", "_track_content_length"]),
        (stream.H2Stream.send_data, ["outbound_flow_control_window"]),
        (windows.WindowManager.window_consumed, ["current_window_size"]),
        (stream.H2StreamStateMachine.request_received, ["client", "headers_received"]),
        (stream.H2StreamStateMachine.response_sent, ["headers_sent", "trailers_sent"]),
        (stream.H2StreamStateMachine.send_end_stream, ["stream_closed_by", "SEND_END_STREAM"]),
        (protocol.EventsProcessor.__init__, ["processors", "streams"]),
        (settings.Settings.__init__, ["_settings"]),
        (settings.Settings.acknowledge, ["_settings", "popleft"]),
        (server.Stream.__init__, ["_stream", "_method_name", "_cardinality", "_recv_type", "metadata", "peer"]),
        (server.Stream.send_initial_metadata, ["_send_initial_metadata_done"]),
        (server.Stream.send_message, ["_send_message_done"]),
        (server.Stream.send_trailing_metadata, ["_send_trailing_metadata_done"]),
    ],
)
def test_functions_set_the_attributes_in_use(owner: Any, names: list[str]) -> None:
    """`rpc` replaces or reads these attributes by name."""
    assert set(names) <= set(owner.__code__.co_names)


def test_h2_reads_the_stream_limit_from_the_raised_setting() -> None:
    """`rpc` can then refuse a stream beyond the limit without ending the connection."""
    assert isinstance(settings.Settings.max_concurrent_streams, property)
    assert "max_concurrent_streams" in connection.H2Connection._receive_headers_frame.__code__.co_names
    assert "max_header_list_size" in connection.H2Connection.__init__.__code__.co_names


def test_h2_keeps_an_unknown_setting() -> None:
    """A server announces its message size with it. hyperframe reads its number whole, but writes it truncated."""
    client = connection.H2Connection()
    body = (0xF048).to_bytes(2, "big") + (1000).to_bytes(4, "big")
    client.initiate_connection()
    client.receive_data(b"\0\0\6\4\0\0\0\0\0" + body)
    assert client.remote_settings.get(0xF048) == 1000
    assert settings.Settings(initial_values={}).get(0xF048) is None


def test_settings_of_a_connection_take_little_memory() -> None:
    """A server has 14 of them for each connection, and h2 has 760 bytes for each."""
    limits = WireLimits()
    h2 = CountingH2(h2_configuration(client_side=False), limits, FrameAccount(limits, 0.0, client_side=False))
    client = connection.H2Connection()
    client.initiate_connection()
    h2.receive_data(client.data_to_send())
    client.receive_data(h2.data_to_send())
    h2.receive_data(client.data_to_send())
    assert h2.remote_settings.max_concurrent_streams == client.local_settings.max_concurrent_streams == 100
    assert h2.local_settings.max_header_list_size == limits.header_size
    for each in (h2.local_settings, h2.remote_settings):
        assert len(each) == 7
        assert max(map(sys.getsizeof, each._settings.values())) < 200


def test_connection_close_closes_the_replaced_transport() -> None:
    """`Connection.close` closes `_transport`, which `rpc` replaces to close one half first."""
    assert {"_transport", "close"} <= set(protocol.Connection.close.__code__.co_names)


def test_default_dispatcher_needs_no_server() -> None:
    """A server stream requires a dispatcher."""
    assert parameters(events._DispatchServerEvents.__init__) == ["self"]


def test_h2_dispatches_goaway_through_its_frame_table() -> None:
    """After a GOAWAY, h2's own handler accepts nothing more, not even the ends of calls that have begun."""
    assert GoAwayFrame in connection.H2Connection()._frame_dispatch_table
    assert parameters(connection.H2Connection()._receive_goaway_frame) == ["frame"]


def test_h2_keeps_partial_headers_in_the_buffer_that_is_cleared() -> None:
    """`rpc` clears it when the connection ends."""
    h2 = connection.H2Connection()
    assert h2.incoming_buffer._headers_buffer == []
    assert "_headers_buffer" in frame_buffer.FrameBuffer._update_header_buffer.__code__.co_names


def test_request_changes_nothing_else_in_h2() -> None:
    """The direct way sets what h2 sets for a request, for its data, and for an answer with trailers."""
    assert {
        each for each in vars(stream.H2Stream(1, config_of_h2.H2Configuration(), 1, 1)) if not each.startswith("__")
    } == {
        "_actual_content_length",
        "_authority",
        "_expected_content_length",
        "_inbound_window_manager",
        "config",
        "max_outbound_frame_size",
        "outbound_flow_control_window",
        "request_method",
        "state_machine",
        "stream_id",
    }
    assert set(vars(stream.H2StreamStateMachine(1))) == {
        "client",
        "headers_received",
        "headers_sent",
        "state",
        "stream_closed_by",
        "stream_id",
        "trailers_received",
        "trailers_sent",
    }


def test_h2_checks_content_length_in_the_overridden_place() -> None:
    """A wrong length would end the connection."""
    assert parameters(connection.H2Connection._begin_new_stream) == ["self", "stream_id", "allowed_ids"]
    assert "_initialize_content_length" in stream.H2Stream.receive_headers.__code__.co_names
    assert "_expected_content_length" in stream.H2Stream._track_content_length.__code__.co_names


def test_asyncio_accepts_the_tls_of_a_ready_socket() -> None:
    """A server creates the TLS itself, so that it has no buffer of its own."""
    tls: Any = sslproto.SSLProtocol
    assert parameters(tls._set_read_buffer_limits) == ["self", "high", "low"]
    wanted = ["self", "loop", "app_protocol", "sslcontext", "waiter", "server_side"]
    assert parameters(tls.__init__)[:6] == wanted
    assert parameters(tls._do_read__copied) == ["self"]
    assert "ssl_handshake_timeout" in parameters(tls.__init__)
    for method, names in (
        (tls.__init__, {"_ssl_buffer", "_ssl_buffer_view", "max_size", "_sslobj"}),
        (tls.get_buffer, {"_ssl_buffer", "_ssl_buffer_view", "max_size"}),
        (tls.buffer_updated, {"_ssl_buffer_view", "_state", "DO_HANDSHAKE"}),
        (tls._do_read, {"_app_reading_paused", "_do_read__copied"}),
        (tls._do_read__copied, {"_sslobj", "data_received", "_call_eof_received", "_start_shutdown"}),
        (tls._do_shutdown, {"_sslobj", "unwrap", "_on_shutdown_complete"}),
        (tls._on_shutdown_complete, {"_transport", "_fatal_error"}),
        (tls._process_outgoing, {"_outgoing", "_transport"}),
        (tls._set_app_protocol, {"_app_protocol"}),
        (tls.connection_lost, {"_app_protocol"}),
        (tls._set_read_buffer_limits, {"_incoming_high_water"}),
        (tls._fatal_error, {"_transport", "_force_close"}),
    ):
        assert names <= set(method.__code__.co_names)
