"""The seam between services and those who call them: a typed protocol for each service, and the one table of refusals.

A service raises the errors of `headway.errors`. What carries a call, such as gRPC or HTTP, looks up their forms here.
"""

from typing import TYPE_CHECKING

from headway.api._call import Call, Peer
from headway.api._calls import (
    FAILED,
    FailedCall,
    Interrupted,
    NotBegun,
    NotServed,
    answer_of,
    answered,
    call_of,
    closed,
    code_of,
    described,
    not_served,
    of_call,
)
from headway.api._methods import Api, Cardinality, Duplex, Handler, Method, Stream, method, stream
from headway.api._refusals import (
    ROWS,
    Code,
    DeadlineExceeded,
    DetailedPrecondition,
    Exhausted,
    MethodNotFound,
    NothingWritten,
    ProgramFailed,
    ProgramFailedLate,
    Reason,
    Row,
    error_of,
    row_of,
)
from headway.api._services import (
    LeaseApi,
    MigrationApi,
    PeeringApi,
    PeerStreamApi,
    QuotaApi,
    ResourceApi,
    StoreApi,
    SubscribeApi,
    TypesApi,
)
from headway.base import imported_later

if TYPE_CHECKING:
    from headway.api._observe import ObserveApi

__all__ = [
    "FAILED",
    "ROWS",
    "Api",
    "Call",
    "Cardinality",
    "Code",
    "DeadlineExceeded",
    "DetailedPrecondition",
    "Duplex",
    "Exhausted",
    "FailedCall",
    "Handler",
    "Interrupted",
    "LeaseApi",
    "Method",
    "MethodNotFound",
    "MigrationApi",
    "NotBegun",
    "NotServed",
    "NothingWritten",
    "ObserveApi",
    "Peer",
    "PeerStreamApi",
    "PeeringApi",
    "ProgramFailed",
    "ProgramFailedLate",
    "QuotaApi",
    "Reason",
    "ResourceApi",
    "Row",
    "StoreApi",
    "Stream",
    "SubscribeApi",
    "TypesApi",
    "answer_of",
    "answered",
    "call_of",
    "closed",
    "code_of",
    "described",
    "error_of",
    "method",
    "not_served",
    "of_call",
    "row_of",
    "stream",
]

# Its messages are many, and most programs never need them.
__getattr__ = imported_later(__name__, {"ObserveApi": "_observe"})
