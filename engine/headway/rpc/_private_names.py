"""The private names of Trio, grpclib, h2, hpack, trio-asyncio and asyncio that this package uses.

They are checked before the first networking module is imported. `tests/rpc/test_private_names.py` also checks what the
functions do with the names.
"""

from __future__ import annotations

from functools import cache

from headway.base import PYTHON, TRIO, PrivateNames, check_private_names

_GRPCLIB = PrivateNames(
    "grpclib",
    {
        "grpclib.protocol:Buffer.eof": "self",
        "grpclib.protocol:Connection.__init__": "self connection transport config",
        "grpclib.protocol:Connection.ack": "self stream_id size",
        "grpclib.protocol:Connection.close": "self",
        "grpclib.protocol:Connection.create_stream": "self stream_id wrapper",
        "grpclib.protocol:Connection.flush": "self",
        "grpclib.protocol:Connection.initialize": "self",
        "grpclib.protocol:Connection.is_closing": "self",
        "grpclib.protocol:Stream.__ended__": "self",
        "grpclib.protocol:Stream.__init__": "self connection h2_connection transport stream_id wrapper",
        "grpclib.protocol:Stream.__terminated__": "self reason",
        "grpclib.protocol:Stream.init_stream": "self stream_id connection",
        "grpclib.protocol:Stream.reset_nowait": "self error_code",
        "grpclib.protocol:Stream.send_data": "self data end_stream",
        "grpclib.protocol:Stream.send_headers": "self headers end_stream",
        "grpclib.protocol:EventsProcessor.__init__": "self handler connection",
        "grpclib.protocol:EventsProcessor.close": "self reason",
        "grpclib.protocol:EventsProcessor.process": "self event",
        "grpclib.protocol:EventsProcessor.process_connection_terminated": "self event",
        "grpclib.protocol:EventsProcessor.process_data_received": "self event",
        "grpclib.protocol:EventsProcessor.process_remote_settings_changed": "self event",
        "grpclib.protocol:EventsProcessor.process_request_received": "self event",
        "grpclib.protocol:EventsProcessor.process_response_received": "self event",
        "grpclib.protocol:EventsProcessor.process_stream_reset": "self event",
        "grpclib.protocol:EventsProcessor.process_trailers_received": "self event",
        "grpclib.protocol:EventsProcessor.process_window_updated": "self event",
        "grpclib.protocol:EventsProcessor.register": "self stream",
        "grpclib.protocol:H2Protocol.__init__": "self handler config h2_config",
        "grpclib.protocol:H2Protocol.connection_lost": "self exc",
        "grpclib.protocol:H2Protocol.connection_made": "self transport",
        "grpclib.protocol:H2Protocol.data_received": "self data",
        "grpclib.protocol:AbstractHandler.accept": "self stream headers release_stream",
        "grpclib.protocol:AbstractHandler.cancel": "self stream",
        "grpclib.protocol:AbstractHandler.close": "self",
        "grpclib.config:Configuration.__for_client__": "self",
        "grpclib.config:Configuration.__for_server__": "self",
        "grpclib.events:_DispatchServerEvents.__init__": "self",
        "grpclib.metadata:Deadline.from_headers": "headers",
        "grpclib.metadata:decode_grpc_message": "value",
        "grpclib.metadata:decode_metadata": "headers",
        "grpclib.metadata:encode_metadata": "metadata",
        "grpclib.metadata:encode_timeout": "timeout",
        "grpclib.server:Stream.send_initial_metadata": "self metadata",
        "grpclib.server:Stream.send_trailing_metadata": "self status status_message status_details metadata",
    },
)
_H2 = PrivateNames(
    "h2",
    {
        "h2.connection:H2Connection.initiate_connection": "self",
        "h2.connection:H2Connection.send_data": "self stream_id data end_stream pad_length",
        "h2.connection:H2Connection._begin_new_stream": "self stream_id allowed_ids",
        "h2.connection:H2Connection._receive_data_frame": "self frame",
        "h2.connection:H2Connection._receive_frame": "self frame",
        "h2.connection:H2Connection._receive_goaway_frame": "self frame",
        "h2.connection:H2Connection._receive_headers_frame": "self frame",
        "h2.connection:H2Connection._terminate_connection": "self error_code",
        "h2.connection:_decode_headers": "decoder encoded_header_block",
        "h2.connection:AllowedStreamIDs.ODD": None,
        "h2.connection:ConnectionState.CLOSED": None,
        "h2.connection:ConnectionState.SERVER_OPEN": None,
        "h2.frame_buffer:FrameBuffer._update_header_buffer": "self f",
        "h2.settings:Settings.__init__": "self client initial_values",
        "h2.settings:Settings.max_concurrent_streams": None,
        "h2.stream:StreamClosedBy.SEND_END_STREAM": None,
        "h2.stream:StreamState.CLOSED": None,
        "h2.stream:StreamState.HALF_CLOSED_REMOTE": None,
        "h2.stream:StreamState.OPEN": None,
        "h2.windows:WindowManager.process_bytes": "self size",
    },
)
_HPACK = PrivateNames(
    "hpack",
    {
        "hpack:Decoder.__init__": "self max_header_list_size",
        "hpack:Decoder.decode": "self data raw",
        "hpack:Decoder._assert_valid_table_size": "self",
        "hpack:Decoder._decode_indexed": "self data",
        "hpack:Decoder._decode_literal_index": "self data",
        "hpack:Decoder._decode_literal_no_index": "self data",
        "hpack:Decoder._update_encoding_context": "self data",
        "hpack:Encoder.encode": "self headers huffman",
        "hpack.huffman_table:decode_huffman": "huffman_string",
        "hpack.table:HeaderTable.STATIC_TABLE": None,
        "hpack.table:HeaderTable.STATIC_TABLE_LENGTH": None,
        "hpack.table:HeaderTable.add": "self name value",
        "hpack.table:HeaderTable.get_by_index": "self index",
        "hpack.table:HeaderTable.maxsize": None,
    },
)
_TRIO_ASYNCIO = PrivateNames(
    "trio-asyncio",
    {
        "trio_asyncio:open_loop": None,
        "trio_asyncio._base:BaseTrioEventLoop.run_aio_coroutine": "self coro",
        "trio_asyncio._base:BaseTrioEventLoop.synchronize": "self",
        "trio_asyncio._loop:_FakedPolicy.policy": None,
        "trio_asyncio._loop:_faked_policy.policy": None,
        "trio_asyncio._loop:_original_policy": None,
    },
)
_ASYNCIO = PrivateNames(
    PYTHON,
    {
        "asyncio.sslproto:SSLProtocol.__init__": "self loop app_protocol sslcontext waiter server_side ...",
        "asyncio.sslproto:SSLProtocol._do_read__copied": "self",
        "asyncio.sslproto:SSLProtocol._fatal_error": "self exc message",
        "asyncio.sslproto:SSLProtocol._on_shutdown_complete": "self shutdown_exc",
        "asyncio.sslproto:SSLProtocol._process_outgoing": "self",
        "asyncio.sslproto:SSLProtocol._set_app_protocol": "self app_protocol",
        "asyncio.sslproto:SSLProtocol._set_read_buffer_limits": "self high low",
        "asyncio.sslproto:SSLProtocol.buffer_updated": "self nbytes",
        "asyncio.sslproto:SSLProtocol.get_buffer": "self n",
        "asyncio.sslproto:SSLProtocolState.DO_HANDSHAKE": None,
    },
)


@cache
def check_network() -> None:
    """Raise ImportError unless the installed versions of the libraries have the private names used here."""
    check_private_names(TRIO, _GRPCLIB, _H2, _HPACK, _TRIO_ASYNCIO, _ASYNCIO)
