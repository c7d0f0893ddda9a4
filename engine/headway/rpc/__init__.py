"""gRPC on Trio: channels and servers, inside a process and over a network.

This package knows nothing about resources. Each service brings the encoders and decoders of its streams. grpclib needs
asyncio's interfaces; they are not visible outside this package. To read the code, start with `_channel.py` and
`_in_process.py`, then read the packages `server`, `client` and `http2`.
"""

from typing import TYPE_CHECKING

from headway._imported_later import imported_later
from headway.api import TOKEN_HEADER as TOKEN_HEADER
from headway.api import Channel as Channel
from headway.api import Lagging as Lagging
from headway.api import Metadata as Metadata
from headway.api import PassingChannel as PassingChannel
from headway.api import Token as Token
from headway.api import timeout_of as timeout_of
from headway.api import token_metadata as token_metadata
from headway.rpc._addresses import Address as Address
from headway.rpc._addresses import address as address
from headway.rpc._addresses import addresses as addresses
from headway.rpc._addresses import is_loopback as is_loopback
from headway.rpc._addresses import plain_text_host as plain_text_host
from headway.rpc._addresses import readable as readable
from headway.rpc._admission import peer_of as peer_of
from headway.rpc._channel import NotReached as NotReached
from headway.rpc._channel import Remedy as Remedy
from headway.rpc._channel import WithMetadata as WithMetadata
from headway.rpc._in_process import InProcessChannel as InProcessChannel
from headway.rpc._limits import Budget as Budget
from headway.rpc._limits import Flooded as Flooded
from headway.rpc._limits import Limits as Limits
from headway.rpc._limits import OpenStreams as OpenStreams
from headway.rpc._limits import Rate as Rate
from headway.rpc._limits import WireLimits as WireLimits
from headway.rpc._private_names import check_network
from headway.rpc._refusals import grpc_error as grpc_error
from headway.rpc._services import Services as Services
from headway.rpc._token import TokenFile as TokenFile
from headway.rpc._token import token_file as token_file
from headway.rpc._told import told as told
from headway.rpc._wire import PIECE as PIECE
from headway.rpc._wire import Encoded as Encoded
from headway.rpc._wire import MessageParser as MessageParser
from headway.rpc._wire import StreamDecoder as StreamDecoder
from headway.rpc._wire import StreamEncoder as StreamEncoder
from headway.rpc._wire import framed as framed

if TYPE_CHECKING:
    from headway.rpc._details import StatusDetails as StatusDetails
    from headway.rpc._details import details_in as details_in
    from headway.rpc._forward import open_forwarder as open_forwarder
    from headway.rpc._health import Health as Health
    from headway.rpc._health import HealthCheckRequest as HealthCheckRequest
    from headway.rpc._health import HealthCheckResponse as HealthCheckResponse
    from headway.rpc._reflection import DescribedFiles as DescribedFiles
    from headway.rpc._reflection import Reflection as Reflection
    from headway.rpc._reflection import ServerReflectionRequest as ServerReflectionRequest
    from headway.rpc._reflection import ServerReflectionResponse as ServerReflectionResponse
    from headway.rpc._system import MemoryReturn as MemoryReturn
    from headway.rpc._system import free_descriptors as free_descriptors
    from headway.rpc._system import is_scarce as is_scarce
    from headway.rpc._system import reserve as reserve
    from headway.rpc._tls import ServerTls as ServerTls
    from headway.rpc._tls import certificate_problem as certificate_problem
    from headway.rpc._tls import client_tls as client_tls
    from headway.rpc._tls import client_tls_of_text as client_tls_of_text
    from headway.rpc._tls import server_tls as server_tls
    from headway.rpc.client import CHANNEL_LIMITS as CHANNEL_LIMITS
    from headway.rpc.client import Admits as Admits
    from headway.rpc.client import Duplex as Duplex
    from headway.rpc.client import RemoteChannel as RemoteChannel
    from headway.rpc.client import UnaryCalls as UnaryCalls
    from headway.rpc.client import open_channel as open_channel
    from headway.rpc.server import Server as Server
    from headway.rpc.server import open_server as open_server

# Modules that need asyncio, h2 and ssl are imported on first use. An engine that uses no network never loads them, and
# `import headway` stays fast.
_LATER = {
    "_details": "StatusDetails details_in",
    "_forward": "open_forwarder",
    "_health": "Health HealthCheckRequest HealthCheckResponse",
    "_reflection": "DescribedFiles Reflection ServerReflectionRequest ServerReflectionResponse",
    "_system": "MemoryReturn free_descriptors is_scarce reserve",
    "_tls": "ServerTls certificate_problem client_tls client_tls_of_text server_tls",
    "client": "Admits CHANNEL_LIMITS Duplex RemoteChannel UnaryCalls open_channel",
    "server": "Server open_server",
}

# Check before importing. Otherwise a missing dependency is reported without a hint on how to install it.
__getattr__ = imported_later(__name__, _LATER, before=check_network)
