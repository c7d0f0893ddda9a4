"""`open_webhooks`, which serves the converters and hooks of a program to the API servers of a cluster."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, MutableMapping, Set
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

import trio

from headway.base import BoundedReport, async_block, block_nursery, check_trio, in_slices
from headway.controller import App
from headway.engine import combine_apps, report_of
from headway.errors import DeclarationError, HeadwayError, InvalidArgument, NotFound
from headway.events import CertificateRenewed, HandlerFailed, Report, ServerWarned
from headway.http import Bounds, HttpRefusal, RequestLimits, Shares, check_hypercorn
from headway.kubernetes._http import ApiServer
from headway.kubernetes._json import apply_text
from headway.kubernetes._kubeconfig import load_config
from headway.kubernetes._reviews import Reviews
from headway.kubernetes._webhook_config import (
    CRDS,
    HOOKS,
    FailurePolicy,
    Place,
    configuration,
    conversion,
    converted_kinds,
    name_of,
    path_of,
    place_of,
    secret_name,
    served_versions,
)

if TYPE_CHECKING:
    from headway.kubernetes._certificates import Pair, SharedPairs

Message = MutableMapping[str, Any]

_LIFE = 90 * 24 * 3600.0
_LONGEST_LIFE = 10 * 365 * 24 * 3600.0
_LOOK = 60.0
"""The seconds between two looks at the Secret and the configurations, at most."""

_GRACE = 1.0
_AT_ONCE = 8
_LARGE = 1 << 20
"""The size of a question from which on only one is answered at once: it may take 25 times as much memory."""

# Go closes an idle connection after 90 seconds. If the server were first, a call could meet the end of its connection.
_BOUNDS = Bounds(connections=256, peer_connections=192, patience=120.0, answer=60.0, stall=30.0)
_LIMITS = RequestLimits(body_size=16 << 20, bodies_size=64 << 20, request_timeout=10.0)
_MANAGER = "headway-webhooks"


@async_block
async def open_webhooks(
    *apps: App,
    address: str,
    at: str | None = None,
    kubeconfig: str | PathLike[str] | None = None,
    context: str | None = None,
    namespace: str | None = None,
    failure_policy: FailurePolicy = "Fail",
    certificate_life: float = _LIFE,
    report: Report | None = None,
) -> AsyncIterator[str]:
    """``async with headway.kubernetes.open_webhooks(app, address="0.0.0.0:9443", at="shop/websites"): ...``

    Serve the converters and the hooks of the custom resources of some apps to the API servers of a cluster, until the
    block ends, and tell the cluster of them. Open it around `open_cluster`, so that the program's own writes find it.
    The block gets the address where it listens.

    Args:
        apps: the apps. Their CRDs must be in the cluster already.
        address: where to listen: ``HOST:PORT``.
        at: where API servers find it: a Service, as ``NAMESPACE/NAME`` or ``NAMESPACE/NAME:PORT``, or an address such
            as ``https://10.0.0.7:9443``. Default: the address where it listens.
        kubeconfig, context, namespace: as for `open_cluster`. The certificates are in a Secret of this namespace.
        failure_policy: ``Fail`` refuses writes while no process of the program answers, ``Ignore`` lets them pass.
        certificate_life: the seconds for which a certificate is valid. After two thirds, a new one takes its place.
        report: receives events.

    Raises:
        DeclarationError: the apps have neither converters nor hooks, or the libraries are not installed.
        InvalidArgument: an address or the kubeconfig is wrong.
        HeadwayError: the API server does not answer, or refuses a call.
        OSError: the address cannot be bound.
    """
    check_trio("headway.kubernetes.open_webhooks")
    if failure_policy not in ("Fail", "Ignore"):
        raise InvalidArgument(f"failure_policy must be 'Fail' or 'Ignore', not {failure_policy!r}")
    if not 1 <= certificate_life <= _LONGEST_LIFE:
        raise InvalidArgument(f"certificate_life must be between 1 second and 10 years, not {certificate_life:g}")
    try:
        check_hypercorn()
        from headway.http import HttpServer, listener, listening_at
        from headway.kubernetes._certificates import SharedPairs
    except ModuleNotFoundError as error:
        raise DeclarationError(f"webhooks need {error.name}: pip install 'headway[webhooks]'") from error
    config = load_config(kubeconfig, context=context, namespace=namespace)
    registry, _ = combine_apps(apps)
    report = report_of(report)
    bounded = BoundedReport(report)

    def failed(path: str, error: BaseException) -> None:
        bounded(HandlerFailed, path=path, error=error)

    listening = listener(address)
    accepting = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
    ending = trio.Event()
    async with (
        accepting,
        ApiServer(config, on_warning=lambda text: report(ServerWarned(text))) as server,
        block_nursery() as nursery,
    ):
        place = place_of(at or f"https://{listening_at(listening)}")
        life = timedelta(seconds=certificate_life)
        pairs = SharedPairs(server, config.namespace, secret_name(apps), place.host, life)
        hooks = partial(
            configuration, registry, name=name_of(apps, config.namespace), place=place, policy=failure_policy
        )
        crds = {crd: served_versions(registry, kind) for kind, crd in converted_kinds(registry)}
        told = _Told(server, pairs, crds, place, hooks)
        if not told.crds and not any(hooks(hook, bundle="")["webhooks"] for hook in HOOKS):
            raise DeclarationError("the apps have neither app.converter(...) nor kubernetes.resource(..., hooks=...)")
        await told.read(None)
        app = _Answers(Reviews(registry, failed, report), failed)

        async def serve() -> None:
            # What has been asked is answered, also if the block is canceled.
            with trio.CancelScope(shield=True):
                await HttpServer(app, _BOUNDS, lambda: told.context).serve(accepting, ending, _GRACE)

        async def keep() -> None:
            while True:
                await trio.sleep(min(_LOOK, certificate_life / 8))
                before = told.pair
                try:
                    await told.read(before)
                    if told.pair[:2] != before[:2]:
                        report(CertificateRenewed(f"Secret {secret_name(apps)}"))
                    await told.tell()
                except (HeadwayError, OSError) as error:
                    failed("webhooks", error)

        nursery.start_soon(bounded.report_rest, name="refused questions")
        nursery.start_soon(serve, name=f"webhooks at {address}")
        try:
            await told.tell()
            nursery.start_soon(keep, name="the certificates of webhooks")
            yield listening_at(listening)
        finally:
            ending.set()


class _Told:
    """What the cluster has been told about the webhooks, and the certificate that they use.

    A new certificate is used once the cluster has trusted it for the time of one look.

    Attributes:
        pair: the certificate in use, and its key.
        crds: the names of the CRDs with converters, each with the versions that the program has.
    """

    def __init__(
        self,
        server: ApiServer,
        shared: SharedPairs,
        crds: Mapping[str, Set[str]],
        place: Place,
        hooks: Callable[..., Any],
    ) -> None:
        self.crds = crds
        self.pair: Pair
        self._server = server
        self._shared = shared
        self._place = place
        self._hooks = hooks
        self._bundle = b""
        self._trusted: Collection[bytes] = ()

    @property
    def context(self) -> ssl.SSLContext:
        """The TLS context of the next connection."""
        return self.pair.context

    async def read(self, used: Pair | None) -> None:
        """Read the pairs, and choose one. ``used`` is the one that is in use."""
        pairs = await self._shared.read(used)
        usable = [each for each in pairs if self._place.host in each.names]
        self.pair = next((each for each in usable if each.certificate in self._trusted), usable[-1])
        self._bundle = b"".join(each.certificate for each in pairs)
        self._told = {each.certificate for each in pairs}

    async def tell(self) -> None:
        """Write what the cluster must know, and nothing else, into its documents. What is the same is not stored."""
        bundle = base64.b64encode(self._bundle).decode()
        advice = "apply what `headway kubernetes crd` prints first"
        for name, versions in self.crds.items():
            path = f"{CRDS}/{name}"
            try:
                found = await self._server.call("GET", path)
            except NotFound as error:
                raise NotFound(f"{error}: {advice}") from error
            # The API server would take hooks of such a version, and only warn that nothing calls them.
            if missing := versions - {each["name"] for each in found["spec"]["versions"] if each["served"]}:
                raise NotFound(f"the cluster does not serve {', '.join(sorted(missing))} of {name}: {advice}")
            wanted = conversion(self._place, bundle)
            if found["spec"].get("conversion") != wanted:
                # Not by an apply: it would leave a Service that somebody has applied beside our address.
                wanted["webhook"]["clientConfig"] |= {"url" if self._place.url is None else "service": None}
                await self._patch(path, {"spec": {"conversion": wanted}}, "application/merge-patch+json")
        for hook in HOOKS:
            document = self._hooks(hook, bundle=bundle)
            await self._patch(path_of(document), document, "application/apply-patch+yaml", force=True)
        self._trusted = self._told

    async def _patch(self, path: str, body: Any, content_type: str, **params: Any) -> None:
        params["fieldManager"] = _MANAGER
        await self._server.call("PATCH", path, params=params, body=apply_text(body), content_type=content_type)


class _Answers:
    """The ASGI application that answers questions."""

    def __init__(self, reviews: Reviews, failed: Callable[[str, BaseException], None]) -> None:
        self._reviews = reviews
        self._failed = failed
        self._shares = Shares(_LIMITS)
        self._free = trio.Semaphore(_AT_ONCE)
        self._large = trio.Lock()

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return
        headers = [(b"content-type", b"application/json")]
        try:
            code, body = 200, await self._answer(scope, receive)
        except HttpRefusal as refusal:
            code, body = refusal.code, f"{refusal}\n".encode()
            # The rest of the body would be taken for the next request.
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
            headers += [(name.encode(), value.encode()) for name, value in refusal.headers.items()]
        except Exception as error:  # noqa: BLE001  # one question must not end the server
            self._failed(scope["path"], error)
            code, body = 500, b"the question has failed; the log of the program says why\n"
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": code, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Message, receive: Callable[[], Awaitable[Message]]) -> bytes:
        if scope["method"] != "POST":
            raise HttpRefusal(405, "UNIMPLEMENTED", "webhooks are called by POST")
        with self._shares.body((scope.get("client") or ("",))[0]) as hold:
            body = await self._body(receive, hold)
            async with self._large if len(body) > _LARGE else nullcontext(), self._free:
                return await in_slices(self._reviews.answered(scope["path"], body))

    async def _body(self, receive: Callable[[], Awaitable[Message]], hold: Callable[[int], None]) -> bytes:
        parts, size = [], 0
        with trio.move_on_after(_LIMITS.request_timeout):
            while True:
                message = await receive()
                part = message.get("body", b"")
                size += len(part)
                if size <= _LIMITS.body_size:
                    hold(len(part))
                    parts.append(part)
                if not message.get("more_body"):
                    break
            if size > _LIMITS.body_size:
                raise HttpRefusal(413, "RESOURCE_EXHAUSTED", f"a question may have {_LIMITS.body_size:,} bytes at most")
            return b"".join(parts)
        raise HttpRefusal(408, "DEADLINE_EXCEEDED", f"the question took more than {_LIMITS.request_timeout:g} seconds")
