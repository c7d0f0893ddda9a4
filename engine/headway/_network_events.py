"""The events of a server on the network: connections, certificates and callers. `headway.events` exports them. Pure."""

from __future__ import annotations

from headway._records import Record


class ConnectionEnded(Record):
    """A server has ended the connection of a ``peer`` that broke the protocol or flooded it; ``why`` says how.

    It is reported at most once a second. ``suppressed`` is the number of such ends since the last report.
    """

    peer: str
    why: str
    suppressed: int = 0


class ConnectionRefused(Record):
    """A server has refused a connection of a ``peer``, or closed it without a call on it; ``why`` names the limit.

    It is reported at most once a second. ``suppressed`` is the number of such connections since the last report.
    """

    peer: str
    why: str
    suppressed: int = 0


class CertificateRenewed(Record):
    """The files of a server's ``certificate`` have changed on disk, and the server uses what they hold now."""

    certificate: str


class CertificateRefused(Record):
    """The files of a server's ``certificate`` have changed on disk and cannot be used; what they held before is."""

    certificate: str
    error: BaseException


class AuthenticationFailed(Record):
    """A call at ``path`` bore a token that does not hold; the caller got UNAUTHENTICATED.

    ``caller`` names the token (its accessor and description) if there is one of that name, else it is ``unknown``. No
    event has a token's text. It is reported at most once a second. ``suppressed`` is the number of such calls since the
    last report.
    """

    caller: str
    why: str
    path: str
    peer: str
    suppressed: int = 0


class CallDenied(Record):
    """A call at ``path`` asked for ``what`` no rule of its caller allows; the caller got PERMISSION_DENIED.

    ``caller`` names the token (its accessor and description), or is ``anonymous``. It is reported at most once a second
    for callers with a token, and for those without one. ``suppressed`` is the number of such calls since the last
    report.
    """

    caller: str
    what: str
    path: str
    peer: str
    suppressed: int = 0


class AccessChanged(Record):
    """Policies or tokens have been replaced: ``policies`` that have changed, and ``callers`` whose rights may have.

    ``ended`` streams were ended for it.
    """

    policies: tuple[str, ...]
    callers: tuple[str, ...]
    ended: int
