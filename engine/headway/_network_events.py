"""The events of a network server: connections, certificates and callers. Exported by `headway.events`. No I/O."""

from __future__ import annotations

from headway._records import Record


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

    ``caller`` names the token (its accessor and description), or is ``unknown`` if there is no such token. No event
    contains the text of a token. Reported at most once a second. ``suppressed`` counts such calls since the last
    report.
    """

    caller: str
    why: str
    path: str
    peer: str
    suppressed: int = 0


class CallDenied(Record):
    """A call at ``path`` asked for ``what``, which no rule of its caller allows. The caller received PERMISSION_DENIED.

    ``caller`` names the token (its accessor and description), or is ``anonymous``. Reported at most once a second for
    callers with a token, and at most once a second for those without. ``suppressed`` counts such calls since the last
    report.
    """

    caller: str
    what: str
    path: str
    peer: str
    suppressed: int = 0


class AccessChanged(Record):
    """Policies or tokens were replaced.

    ``policies`` are those that changed, and ``callers`` are those whose rights may have changed. ``ended`` is the
    number of streams that were closed because of it.
    """

    policies: tuple[str, ...]
    callers: tuple[str, ...]
    ended: int
