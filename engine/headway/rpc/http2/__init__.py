"""HTTP/2 for gRPC, on grpclib, h2 and hpack: connections and streams, with limits on what a peer may send.

Read `_protocol.py` first (one connection), then `_connection.py` and `_stream.py`. `_frames.py` and `_requests.py`
check what a peer sends, `_flow.py` bounds the data that streams send and receive, and `_direct.py` handles the frames
of ordinary calls without h2. Nothing here opens a socket.
"""

from headway.rpc.http2._connection import Http2Connection as Http2Connection
from headway.rpc.http2._connection import Http2Processor as Http2Processor
from headway.rpc.http2._direct import DirectFrames as DirectFrames
from headway.rpc.http2._direct import content_frames as content_frames
from headway.rpc.http2._direct import fits_whole as fits_whole
from headway.rpc.http2._direct import send_end as send_end
from headway.rpc.http2._direct import send_reply as send_reply
from headway.rpc.http2._direct import send_whole as send_whole
from headway.rpc.http2._flow import Inbox as Inbox
from headway.rpc.http2._flow import Signal as Signal
from headway.rpc.http2._flow import WindowQueue as WindowQueue
from headway.rpc.http2._frames import LITTLE as LITTLE
from headway.rpc.http2._frames import FrameAccount as FrameAccount
from headway.rpc.http2._frames import FrameCutter as FrameCutter
from headway.rpc.http2._frames import FrameTooLarge as FrameTooLarge
from headway.rpc.http2._frames import malformed_request as malformed_request
from headway.rpc.http2._frames import malformed_response as malformed_response
from headway.rpc.http2._frames import malformed_trailers as malformed_trailers
from headway.rpc.http2._h2 import CountingH2 as CountingH2
from headway.rpc.http2._h2 import h2_configuration as h2_configuration
from headway.rpc.http2._hpack import BoundedDecoder as BoundedDecoder
from headway.rpc.http2._hpack import RepeatingEncoder as RepeatingEncoder
from headway.rpc.http2._protocol import MOST_DISCARDED as MOST_DISCARDED
from headway.rpc.http2._protocol import Http2Protocol as Http2Protocol
from headway.rpc.http2._requests import Request as Request
from headway.rpc.http2._requests import Requests as Requests
from headway.rpc.http2._stream import Http2Stream as Http2Stream
