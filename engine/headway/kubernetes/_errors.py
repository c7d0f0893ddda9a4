"""The errors of calls to an API server: its refusals, and failures of the network."""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import httpx

from headway.api import Code, FailedCall, Interrupted, NotBegun, NotServed, of_call
from headway.base import bounded, plain
from headway.errors import (
    AlreadyExists,
    Conflict,
    FailedPrecondition,
    FieldConflict,
    HeadwayError,
    HistoryCompacted,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    RateLimited,
    Unauthenticated,
    WrongUid,
)

_LONGEST_TEXT = 4_000
_OF_PROXIES = (401, 403, 413, 429)
_ALWAYS = {404: NotFound, 410: HistoryCompacted}
# The texts of the API server for a uid that is not the stored one; its reason says only Conflict.
_OTHER_UID = re.compile("UID in (the )?precondition|^uid mismatch|: uid mismatch")
_TOO_LARGE_FOR_ETCD = ("etcdserver: request is too large", "trying to send message larger than max")
_NOT_TYPED = "failed to create typed patch object"
_NOT_ADMITTED = "Internal error occurred: failed calling webhook "
_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.ProxyError,
    httpx.LocalProtocolError,
    httpx.UnsupportedProtocol,
)
_DENIED = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)" '
    r'(?:in the namespace "(?P<namespace>[^"]*)"|at the cluster scope)'
)
_SERVICE_ACCOUNT = "system:serviceaccount:"
_NOT_TLS = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
# OpenSSL's codes for the reasons why a certificate is rejected (X509_V_ERR_…), and what to do.
_REMEDIES = {
    **dict.fromkeys((62, 64), "use one of its names in the address, or set tls-server-name"),
    **dict.fromkeys((18, 19, 20, 21), "set certificate-authority(-data) of the cluster to the server's CA"),
}
_RENEW = "renew the server's certificate, or correct the clock of this machine"


class Request(NamedTuple):
    """A request, as errors describe it.

    Attributes:
        where: the server and the origin of its address.
        proxy: the URL of the proxy without its password, or "".
    """

    method: str
    path: str
    where: str
    proxy: str = ""

    @property
    def write(self) -> bool:
        """True if the request may change something."""
        return self.method != "GET"

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Cause(NamedTuple):
    """One of the causes that an API server gives, such as a field that is invalid."""

    reason: str
    message: str
    field: str


class ApiStatus(Exception):
    """The Status of an API server: the cause of the error that a caller sees.

    Attributes:
        fields: all fields of the Status. Its metadata may have a token to continue an expired list.
    """

    def __init__(self, fields: Mapping[str, Any], code: int = 500) -> None:
        self.code = int(fields.get("code") or code)
        self.reason = str(fields.get("reason") or "")
        self.message = bounded(plain(str(fields.get("message") or self.reason or f"HTTP {code}")), _LONGEST_TEXT)
        self.fields = fields
        self.details: Mapping[str, Any] = fields.get("details") or {}
        causes = self.details.get("causes") or ()
        self.causes = [Cause(*(str(each.get(name) or "") for name in Cause._fields)) for each in causes]
        super().__init__(self.message)


class Limited(RateLimited):
    """A refusal after which the call should be repeated: it had no effect."""

    is_waited_for = True


class NotAdmitted(NotBegun):
    """A write that had no effect, because a webhook that must admit it is down."""


def refused(code: int, body: bytes, retry_after: str | None, request: Request) -> HeadwayError:
    """Return the error for an answer of HTTP that is not a success."""
    try:
        fields = json.loads(body)
    except ValueError:
        fields = None
    if isinstance(fields, dict) and fields.get("kind") == "Status":
        return refused_by(ApiStatus(fields, code), request, retry_after)
    if body.startswith(b"404 page not found"):
        right = "install what defines this type, such as its CustomResourceDefinition, or use a version that is served"
        return of_call(NotFound(f"{request.where} does not serve {request.path}: {right}"))
    start = bounded(plain(body[:300].decode(errors="replace").strip()), 200)
    answer = f"{request} was answered with status {code}" + (f" and {start!r}" if start else "")
    if code in _OF_PROXIES or code >= 500:
        return refused_by(ApiStatus({"message": answer}, code), request, retry_after)
    return no_api_server(request, answer)


def refused_by(status: ApiStatus, request: Request, retry_after: str | None = None) -> HeadwayError:
    """Return the error for a Status, of an answer or of an ERROR event."""
    # A date counts as no time to wait.
    asked = str(status.details.get("retryAfterSeconds") or retry_after or "").strip()
    error = _of_status(status, request, float(asked) if re.fullmatch("[0-9]{1,6}", asked) else None)
    if error.failed_call is None:
        of_call(error)
    error.__cause__ = status
    return error


def _of_status(status: ApiStatus, request: Request, retry_after: float | None) -> HeadwayError:
    text, code = status.message, status.code
    # With this reason, the server has done nothing, such as while it starts. Reads may be repeated in any case.
    harmless = status.reason == "ServiceUnavailable" or not request.write
    if code == 429 or (code == 503 and retry_after is not None and harmless):
        return Limited(text, 1.0 if retry_after is None else retry_after)
    if code == 413 or any(part in text for part in _TOO_LARGE_FOR_ETCD):
        return too_large(request, text)
    if _NOT_TYPED in text:
        # An apply whose fields do not fit the schema. The server answers 500.
        return InvalidArgument(text)
    if text.startswith(_NOT_ADMITTED):
        # Hooks are called before anything is stored. The webhook is down, or has not answered in time.
        return NotAdmitted(Code.UNAVAILABLE, text)
    if code == 422 and any(cause.field == "metadata.uid" for cause in status.causes):
        return WrongUid(text)
    if code in _ALWAYS:
        return _ALWAYS[code](text)
    if code in (401, 403):
        return _denied(status, request)
    if code == 409:
        return _conflict(status)
    if 400 <= code < 500:
        missing = [f"{each.field}: {each.message}" for each in status.causes if each.field and each.field not in text]
        return InvalidArgument("; ".join([text, *missing]))
    status_code = {502: Code.UNAVAILABLE, 503: Code.UNAVAILABLE, 504: Code.DEADLINE_EXCEEDED}.get(code, Code.INTERNAL)
    return uncertain(request, status_code, f"{request} failed with status {code}: {text}")


def _conflict(status: ApiStatus) -> HeadwayError:
    text = status.message
    taken = [
        (cause.message.partition('"')[2].partition('"')[0] or cause.message, cause.field.removeprefix("."))
        for cause in status.causes
        if cause.reason == "FieldManagerConflict"
    ]
    if taken:
        return FieldConflict(text, taken)
    if status.reason == "AlreadyExists":
        return AlreadyExists(text)
    return WrongUid(text) if _OTHER_UID.search(text) else Conflict(text)


def _denied(status: ApiStatus, request: Request) -> HeadwayError:
    text = status.message
    found = _DENIED.search(text)
    if status.code == 401 or (found is not None and found["user"] == "system:anonymous"):
        right = "log in again, or renew the token or the certificate there"
        return Unauthenticated(f"{request.where} does not accept the credentials, or got none ({text}): {right}")
    if any(cause.reason == "NamespaceTerminating" for cause in status.causes):
        return FailedPrecondition(f"{text}: wait until the namespace is gone, or use another one")
    if "can't set finalizers on" in text:
        text += ': grant the verb "update" on the subresource "finalizers" of the owner\'s resource'
    return PermissionDenied(f"{text}. {_rule(found)}" if found else text)


def _rule(found: re.Match[str]) -> str:
    """Return a sentence with the rule of RBAC that would have allowed a denied call."""
    verb, group, resource = found["verb"], found["group"], found["resource"]
    role = f"a Role of namespace {found['namespace']} (or a ClusterRole)" if found["namespace"] else "a ClusterRole"
    if verb.startswith("impersonate"):
        verb, group, resource, role = "impersonate", "", "users", "a ClusterRole"
    rule = f'{{apiGroups: ["{group}"], resources: ["{resource}"], verbs: ["{verb}"]}}'
    user = f"user {found['user']}"
    if found["user"].startswith(_SERVICE_ACCOUNT):
        namespace, _, name = found["user"].removeprefix(_SERVICE_ACCOUNT).partition(":")
        user = f"service account {name} of namespace {namespace}"
    return f"To grant it, add the rule {rule} to {role} that is bound to {user}"


def too_large(request: Request, text: str) -> InvalidArgument:
    """Return the error for an object that is too large."""
    right = "an object may have about 1.5 MiB; make it smaller, or split it"
    return of_call(InvalidArgument(f"{request}: {text}: {right}"))


def uncertain(request: Request, code: Code, text: str) -> HeadwayError:
    """Return the error of a call that may have had an effect if it is a write."""
    return Interrupted(code, text) if request.write else NotBegun(code, text)


def no_api_server(request: Request, text: str) -> NotServed:
    """Return the error for a server other than an API server of Kubernetes."""
    right = "give the address of an API server, as `kubectl cluster-info` prints it"
    if "Client sent an HTTP request to an HTTPS server" in text:
        right = "write https:// in the address"
    message = f"{request.where} is not an API server of Kubernetes: {text}; {right}"
    return of_call(NotServed(message), FailedCall(Code.UNIMPLEMENTED, message))


def failed(error: BaseException, request: Request) -> HeadwayError:
    """Return the error for a call without an answer. The HTTP client has raised ``error``."""
    begun, tls, chain = not isinstance(error, _NOT_SENT), tls_error(error), list(_chain(error))
    text = next((text for each in chain if (text := str(each).strip())), type(error).__name__)
    why = bounded(plain(text), 300)
    # In TLS 1.3, the server refuses the client's certificate after the client has sent its request.
    if begun and not (tls and any(word in (tls.reason or "") for word in ("CERTIFICATE", "UNKNOWN_CA"))):
        what = "TLS failed" if tls else "the connection was lost"
        return uncertain(request, Code.UNAVAILABLE, f"{request.where}: {what} during {request} ({why})")
    if tls:
        why = _tls_problem(tls, begun, why)
    elif request.proxy:
        right = "start it, or correct proxy-url of the cluster, or HTTPS_PROXY"
        why = f"the proxy {request.proxy} has opened no connection ({why}): {right}"
    elif resolved := [each for each in chain if isinstance(each, socket.gaierror)]:
        why = f"the name of the server is unknown ({resolved[0].strerror}): compare it with the cluster's"
    elif any(isinstance(each, ConnectionRefusedError) for each in chain):
        why = "the connection is refused: start the API server, or correct the address"
    elif isinstance(error, httpx.TimeoutException):
        why = "no connection could be made in time: check the address, the network and the proxy"
    return NotBegun(Code.UNAVAILABLE, f"{request.where} cannot be reached: {why}")


def tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """Return the failure of TLS that an error comes from, or None."""
    return next((each for each in _chain(error) if isinstance(each, ssl.SSLError)), None)


def _tls_problem(error: ssl.SSLError, begun: bool, text: str) -> str:
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        right = _REMEDIES.get(error.verify_code, _RENEW)
        return f"its certificate is not accepted here ({error.verify_message.rstrip('.')}): {right}"
    if reason in _NOT_TLS:
        return "it does not speak TLS: write http:// in the address, or give the address of an API server"
    if begun or "ALERT" in reason:
        return f"it refuses the client's certificate or TLS version ({reason}): renew the client certificate"
    return f"TLS failed ({text})"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Iterate over an error, its causes or contexts, and the members of its groups."""
    while error is not None:
        yield error
        for each in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
            yield from _chain(each)
        error = error.__cause__ or error.__context__
