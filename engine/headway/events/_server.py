"""The events of a network server and of a whole process. No I/O."""

from __future__ import annotations

from headway.events._record import Record


class ConnectionEnded(Record):
    """A server closed the connection of a ``peer`` that violated the protocol or flooded it. ``why`` describes how.

    Reported at most once a second. ``suppressed`` counts such connections since the last report.
    """

    peer: str
    why: str
    suppressed: int = 0


class ConnectionRefused(Record):
    """A server refused a connection of a ``peer``, or closed it before any call was made. ``why`` names the limit.

    Reported at most once a second. ``suppressed`` counts such connections since the last report.
    """

    peer: str
    why: str
    suppressed: int = 0


class CertificateRenewed(Record):
    """The files of a server's ``certificate`` changed on disk, and the server now uses the new content."""

    certificate: str


class CertificateRefused(Record):
    """The files of a server's ``certificate`` changed on disk but are invalid. The server keeps the old content."""

    certificate: str
    error: BaseException


class AuthenticationFailed(Record):
    """A call at ``path`` carried an invalid token. The caller received UNAUTHENTICATED.

    ``caller`` names the token (its accessor and description), or is ``unknown`` if there is no such token. Of a JWT, it
    names the issuer and the subject, but only if the signature is right. No event contains the text of a token.
    Reported at most once a second. ``suppressed`` counts such calls since the last report.
    """

    caller: str
    why: str
    path: str
    peer: str
    suppressed: int = 0


class CallDenied(Record):
    """A call at ``path`` asked for ``what``, which no rule of its caller allows. The caller received PERMISSION_DENIED.

    Over HTTP, ``path`` is the method and the path of the request, such as ``GET /api/staff/v1/team/core``.
    ``caller`` names the token (its accessor and description), or is ``anonymous``. Reported at most once a second for
    callers with a token, and at most once a second for those without. ``suppressed`` counts such calls since the last
    report.
    """

    caller: str
    what: str
    path: str
    peer: str
    suppressed: int = 0


class CallLimited(Record):
    """A call at ``path`` was refused, because its caller calls more often than a ``limit`` allows. It did nothing.

    The caller received RESOURCE_EXHAUSTED, and was asked to wait ``seconds`` before it repeats the call. ``category``
    is ``read``, ``write`` or ``watch``. ``caller`` names the token (its accessor and description), or is ``anonymous``.
    Reported at most once a second for each limit and category, apart for callers with and without a token.
    ``suppressed`` counts such calls since the last report.
    """

    limit: str
    category: str
    caller: str
    path: str
    peer: str
    seconds: float
    suppressed: int = 0


class PeerRefused(Record):
    """A ``peer`` presented a secret of a peering that is not valid, or violated the protocol of peerings.

    No event contains a secret. Reported at most once a second. ``suppressed`` counts such calls since the last report.
    """

    why: str
    peer: str
    suppressed: int = 0


class PeerNotNotified(Record):
    """A ``peering`` was removed, and its other side does not know of the deletion.

    It could not be reached, or refused the secret of the peering. Its own peering and its copies stay until they are
    deleted there. ``why`` is the last problem.
    """

    peering: str
    why: str
    suppressed: int = 0


class PeerStoreReplaced(Record):
    """The other store of a ``peering`` was restored, or an operator has accepted that it was rolled back.

    Its snapshot replaces the copies here. Some of them may become older, and others are removed.
    """

    peering: str
    suppressed: int = 0


class AccessChanged(Record):
    """Policies, tokens or limits were replaced.

    ``policies`` and ``limits`` are those that changed, and ``callers`` are those whose rights may have changed.
    ``ended`` is the number of streams that were closed because of it.
    """

    policies: tuple[str, ...]
    callers: tuple[str, ...]
    ended: int
    limits: tuple[str, ...] = ()


class LoginRefused(Record):
    """A call carried a JWT that is not accepted. `AuthenticationFailed` is the log line for it, and this the count.

    ``issuer`` is a name in the access file, or empty if the token is of none of them. ``reason`` is one word of a fixed
    set. Reported at most once a second for each issuer and reason. ``suppressed`` counts such calls since the last
    report.
    """

    issuer: str
    reason: str
    suppressed: int = 0


class IssuerKeysRead(Record):
    """The keys of an ``issuer`` of logins were read, and ``keys`` of them can be used."""

    issuer: str
    keys: int


class IssuerKeysChanged(Record):
    """The keys of an ``issuer`` of logins have changed.

    ``keys`` are the ids of the new keys. It is empty if all keys were dropped, because the issuer publishes no usable
    key, or because reading its keys has failed for too long. ``left_out`` names the keys that are not used, with the
    reasons. ``ended`` is the number of streams that were closed, because their token was signed by a removed key.
    """

    issuer: str
    keys: tuple[str, ...]
    left_out: str
    ended: int


class IssuerFailed(Record):
    """The keys of an ``issuer`` of logins could not be read. It is tried again, each time later.

    The ``keys`` that are known are used for another ``seconds``. Then every login of the issuer is refused.
    """

    issuer: str
    why: str
    keys: int
    seconds: float


class StoreFailed(Record):
    """The store cannot be used. ``problem`` is ``unusable``, ``away`` or ``rolled_back``, as in `StoreProblem`.

    The health service reports NOT_SERVING.
    """

    problem: str
    error: BaseException


class StoreRecovered(Record):
    """A store can be used again, ``seconds`` after the first `StoreFailed`."""

    problem: str
    seconds: float


class LoopBlocked(Record):
    """A ``task`` has blocked Trio's event loop for ``seconds``. Nothing else in the process runs until it awaits.

    ``stack`` shows the task's position. ``controller`` is the controller that it belongs to ("" if none), and ``key``
    is the key that it reconciles or maps (None if neither). A lasting block is reported again each time its duration
    has doubled. Another block is reported at the earliest 10 seconds later. ``suppressed`` counts the blocks since the
    last report. A reconcile has its ``attempt``, and its ``trace_id`` if it has one. Reported from another thread.
    """

    task: str
    controller: str
    key: tuple[str, str, str] | None
    stack: str
    seconds: float
    suppressed: int = 0
    attempt: int = 0
    trace_id: str = ""


class ShutdownBlocked(Record):
    """A task is still running ``seconds`` after its engine began to shut down. ``stack`` shows its position.

    Reported from another thread, because Trio's event loop may be blocked.
    """

    task: str
    stack: str
    seconds: float


class ServerWarned(Record):
    """A server that this process calls has warned, such as an API server of Kubernetes about an unknown field."""

    text: str
