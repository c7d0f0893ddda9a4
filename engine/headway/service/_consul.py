"""The resource service under the name of Consul's public API: `ResourceService` with Consul's deviations.

Three things differ, so that a client made for Consul works unchanged:

1. A Write without a version that names the uid of a deleted incarnation creates a new one.
2. A tombstone's payload has the type URL of Consul's message, which Consul's clients can decode.
3. A refusal for a failed comparison of versions, a wrong uid or a missing resource ends with Consul's own sentence.
Consul's clients recognize the error by it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from headway.api import Handler, row_of
from headway.base import CallerTurns, KeyTurns
from headway.errors import Conflict, HeadwayError, NotFound, WrongUid
from headway.journal import WriteJournal
from headway.resource import TOMBSTONE, AnyMessage, Changes, Registry, SnapshotChunk, pb, with_payload
from headway.rpc import StreamEncoder
from headway.service._access import AccessChecks, Permissions
from headway.service._encodings import ResourceEncodings
from headway.service._handlers import Context, Handlers
from headway.service._service import WATCH_LIST, verbs
from headway.service._subscribe import SUBSCRIBE
from headway.service._subscribe_wire import SubscribeEncoder
from headway.service._versions import Versions
from headway.service._watch_wire import WatchEncoder
from headway.storage import Backend

CONSUL_SERVICE = "hashicorp.consul.resource.ResourceService"
CONSUL_WATCH_LIST = f"/{CONSUL_SERVICE}/WatchList"

TOMBSTONE_URL = "type.googleapis.com/hashicorp.consul.resource.Tombstone"
"""The type URL of a tombstone's payload in Consul."""

CAS_FAILED = "CAS operation failed because the given version doesn't match what is stored"
WRONG_UID = "write failed because the given uid doesn't match what is stored"
NOT_FOUND = "resource not found"

_SENTENCES: dict[type[HeadwayError], str] = {WrongUid: WRONG_UID, Conflict: CAS_FAILED, NotFound: NOT_FOUND}


class ConsulService:
    """The eight verbs as Consul's clients expect them. It takes the arguments of `ResourceService`."""

    def __init__(
        self,
        backend: Backend,
        registry: Registry,
        permissions: Permissions | None = None,
        *,
        versions: Versions | None = None,
        journal: WriteJournal | None = None,
        encodings: ResourceEncodings | None = None,
        reads: CallerTurns | None = None,
        turns: KeyTurns | None = None,
    ) -> None:
        access = AccessChecks(permissions, registry)
        versions, turns = versions or Versions(registry), turns or KeyTurns()
        context = Context(backend, access, versions, turns, journal=journal, encodings=encodings)
        self._context = context._replace(recreates=True, as_listed=_listed, reads=reads)

    def __mapping__(self) -> Handlers:
        """Return the handlers by path, under Consul's name of the service."""
        return Handlers(_BY_PATH, self._context)


def watch_encoders(encodings: ResourceEncodings | None = None) -> dict[str, StreamEncoder]:
    """Return the encoders of streams by path: of WatchList under both names of the service, and of Subscribe.

    A resource is encoded once for all of them.
    """
    encodings = encodings or ResourceEncodings()
    encoder = WatchEncoder(encodings)
    return {WATCH_LIST: encoder, CONSUL_WATCH_LIST: encoder, SUBSCRIBE: SubscribeEncoder(encodings)}


def _as_consul(function: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    async def serve(stream: Any) -> None:
        try:
            await function(_ConsulStream(stream))
        except HeadwayError as error:
            row = row_of(error)
            if row is None or row.error not in _SENTENCES:
                raise
            raise row.error(f"{error} ({_SENTENCES[row.error]})") from error

    return serve


def _consul_verb(make: Callable[[Context], Handler]) -> Callable[[Context], Handler]:
    def made(context: Context) -> Handler:
        handler = make(context)
        return handler._replace(func=_as_consul(handler.func))

    return made


_BY_PATH = {path: _consul_verb(make) for path, make in verbs(CONSUL_SERVICE).items()}


class _ConsulStream:
    """The stream of a call. It sends tombstones as Consul does."""

    __slots__ = ("_stream",)

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        # In particular `encodes`, so that lists are bounded under this name too.
        return getattr(self._stream, name)

    def send_message(self, message: Any) -> Any:
        return self._stream.send_message(_as_sent(message))

    @property
    def encode(self) -> Any:
        encode = getattr(self._stream, "encode", None)
        return None if encode is None else lambda message: encode(_as_sent(message))


def _as_sent(message: Any) -> Any:
    """Convert the tombstones in a message to Consul's form.

    Tombstones are copied because stored resources are shared. Lists need no conversion here: `_listed` converts their
    tombstones earlier, because a large list is encoded before it is sent.
    """
    if isinstance(message, pb.ReadResponse | pb.WriteStatusResponse | pb.DeleteResponse):
        if _is_tombstone(message.resource):
            message.resource = _tombstone(message.resource)
    elif isinstance(message, SnapshotChunk):
        # All resources have one type.
        if message.resources and _is_tombstone(message.resources[0]):
            return SnapshotChunk([_tombstone(each) for each in message.resources])
    elif isinstance(message, Changes) and _is_tombstone(message.changes[0].resource):
        return Changes([each._replace(resource=_tombstone(each.resource)) for each in message.changes])
    return message


def _listed(stored: pb.Resource) -> pb.Resource:
    return _tombstone(stored) if _is_tombstone(stored) else stored


def _is_tombstone(resource: pb.Resource | None) -> bool:
    return resource is not None and resource.id is not None and resource.id.type == TOMBSTONE.message


def _tombstone(stored: pb.Resource | None) -> pb.Resource:
    assert stored is not None
    data = stored.data
    return with_payload(stored, None if data is None else AnyMessage(type_url=TOMBSTONE_URL, value=data.value))
