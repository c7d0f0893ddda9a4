"""A gRPC server on Trio: its sockets and connections, and each call with its stream.

Read `_server.py` first, then `_calls.py` and `_stream.py`. `_answers.py` calls the handlers, `_running.py` begins a
call in the middle of a task, and `_whole.py` answers one without a stream as long as it can. `_transport.py` reads and
sends bytes.
Nothing here knows what a call is about.
"""

from headway.rpc.server._calls import Calls as Calls
from headway.rpc.server._running import Running as Running
from headway.rpc.server._server import Server as Server
from headway.rpc.server._server import open_server as open_server
from headway.rpc.server._stream import CALL_SIZE as CALL_SIZE
from headway.rpc.server._stream import ServerStream as ServerStream
from headway.rpc.server._tls_protocol import TlsProtocol as TlsProtocol
from headway.rpc.server._transport import Outbox as Outbox
from headway.rpc.server._transport import SocketTransport as SocketTransport
