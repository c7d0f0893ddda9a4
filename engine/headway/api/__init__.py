"""The seam between services and those who call them: a typed protocol for each service, and the one table of refusals.

A service raises the errors of `headway.errors`. What carries a call, such as gRPC or HTTP, looks up their forms here.
"""

from typing import TYPE_CHECKING

from headway._imported_later import imported_later
from headway.api._bounds import (
    MAX_FILTER,
    MAX_NUMBER,
    MAX_PAGE,
    MAX_SUBJECTS,
    MAX_TERMS,
    MAX_TEXT,
    MAX_TTL_MS,
    MAX_WAIT_MS,
    MIN_TTL_MS,
    metadata_terms,
)
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
from headway.api._channel import Channel, Lagging, Metadata, PassingChannel, timeout_of
from headway.api._limited_waits import LimitedWaits, ended_a_wait, spread
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
    exit_of,
    row_of,
)
from headway.api._services import (
    LeaseApi,
    ResourceApi,
    StoreApi,
    TypesApi,
)
from headway.api._token import TOKEN_HEADER, Token, token_metadata
from headway.api._wrapper import Wrapper

if TYPE_CHECKING:
    from headway.api._observe import ObserveApi

__all__ = [
    "FAILED",
    "MAX_FILTER",
    "MAX_NUMBER",
    "MAX_PAGE",
    "MAX_SUBJECTS",
    "MAX_TERMS",
    "MAX_TEXT",
    "MAX_TTL_MS",
    "MAX_WAIT_MS",
    "MIN_TTL_MS",
    "ROWS",
    "TOKEN_HEADER",
    "Api",
    "Call",
    "Cardinality",
    "Channel",
    "Code",
    "DeadlineExceeded",
    "DetailedPrecondition",
    "Duplex",
    "Exhausted",
    "FailedCall",
    "Handler",
    "Interrupted",
    "Lagging",
    "LeaseApi",
    "LimitedWaits",
    "Metadata",
    "Method",
    "MethodNotFound",
    "NotBegun",
    "NotServed",
    "NothingWritten",
    "ObserveApi",
    "PassingChannel",
    "Peer",
    "ProgramFailed",
    "ProgramFailedLate",
    "Reason",
    "ResourceApi",
    "Row",
    "StoreApi",
    "Stream",
    "Token",
    "TypesApi",
    "Wrapper",
    "answer_of",
    "answered",
    "call_of",
    "closed",
    "code_of",
    "described",
    "ended_a_wait",
    "error_of",
    "exit_of",
    "metadata_terms",
    "method",
    "not_served",
    "of_call",
    "row_of",
    "spread",
    "stream",
    "timeout_of",
    "token_metadata",
]

# Its messages are many, and most programs never need them.
__getattr__ = imported_later(__name__, {"_observe": "ObserveApi"})
