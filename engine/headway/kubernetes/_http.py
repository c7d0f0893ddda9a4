"""Calls and watches of an API server, over HTTP/1.1."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self

import httpx
import trio

from headway._version import VERSION
from headway.api import Code, Interrupted, LimitedWaits, NotBegun
from headway.base import block_nursery, without_password
from headway.errors import HeadwayError, Unauthenticated
from headway.kubernetes._any_json import parsed
from headway.kubernetes._credentials import Credential, Credentials
from headway.kubernetes._errors import Limited, Request, failed, no_api_server, refused, tls_error, too_large, uncertain
from headway.kubernetes._kubeconfig import ClusterConfig

Params = Mapping[str, str | int | bool]

SILENCE = 90.0
"""The seconds without a byte after which a watch has failed. A server sends a bookmark about every 60 seconds."""

_MOST_CALLS = 64
"""The most connections for calls. More calls wait for one of them."""

_MOST_WARNINGS = 1_000
"""The most warnings that are remembered. A remembered one is not reported again."""

_MOST_BYTES = 3 * 2**20
"""The size of a request from which on every API server refuses it."""

_CONNECT = 10.0
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=60.0)
_JSON = "application/json"
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


class ApiServer:
    """An API server of Kubernetes: ``async with ApiServer(load_config()) as server: ...``.

    A call that is canceled or timed out closes its connection, so that the server usually gives it up, too.

    Args:
        timeout: the seconds until a call without an answer fails, with its wait for other calls. A refused call is
            repeated for this long.
        on_warning: called once with each warning of the server, such as about an unknown field, and with each problem
            of files that should be read again, and of an exec plugin.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        timeout: float = 30.0,
        on_warning: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.config = config
        self.timeout = timeout
        self._on_warning = on_warning
        self._where = f"{config.server} ({config.where})"
        self._proxy = without_password(config.proxy or "")
        self._warned: set[str] = set()
        self._free = trio.Semaphore(_MOST_CALLS)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(block_nursery())
            self._credentials = Credentials(self.config, self._on_warning, tasks)
            self._client = _Client(self.config, (await self._credentials.current()).tls)
            stack.push_async_callback(lambda: self._client.release())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: object = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        timeout: float | None = None,
    ) -> Any:
        """Make a call, and return the parsed JSON of its answer.

        A call that the server refuses for now is repeated after the time that the server asks for.

        Args:
            path: the path below the server's URL, such as ``/api/v1/namespaces``.
            body: an object to send as JSON, or bytes to send unchanged.
            content_type: the type of the body, such as ``application/apply-patch+yaml``.
            timeout: the seconds for this call, if not those of the object.

        Raises:
            HeadwayError: an error of a call (`headway.api.call_of`). It is `headway.api.Interrupted` if a write may
                have had an effect.
        """
        request = Request(method, path, self._where, self._proxy)
        content = b""
        if body is not None:
            content = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
        if len(content) > _MOST_BYTES:
            # The server would close the connection while the body is sent, so its refusal could not be read.
            raise too_large(request, f"the object has {len(content):,} bytes")
        headers = {"Accept": accept} | ({"Content-Type": content_type} if content else {})
        seconds = self.timeout if timeout is None else timeout
        stack, answer = await self._sent(request, params, headers, content, seconds)
        async with stack:
            try:
                return parsed(answer.content)
            except ValueError as error:
                text = f"{self._where} answered {request} with something else than JSON"
                raise uncertain(request, Code.INTERNAL, text) from error

    @asynccontextmanager
    async def watch(
        self, path: str, params: Params | None = None, *, accept: str = _JSON
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch and iterate over its lines: ``async with server.watch(path, params) as lines: ...``.

        The iterator ends when the server ends the watch. Leaving the block closes the connection. The parameter
        ``watch`` is added.

        Raises:
            HeadwayError: an error of a call. It is Unavailable if the connection is lost, or if no byte has arrived for
                90 seconds.
        """
        request = Request("GET", path, self._where, self._proxy)
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        params = {**(params or {}), "watch": True}
        stack, answer = await self._sent(request, params, headers, b"", self.timeout, stream=True)
        async with stack, aclosing(_lines(answer, request)) as lines:
            yield lines

    async def _sent(
        self,
        request: Request,
        params: Params | None,
        headers: dict[str, str],
        content: bytes,
        seconds: float,
        *,
        stream: bool = False,
    ) -> tuple[AsyncExitStack, httpx.Response]:
        """Return the answer to a request, which is a success, and the stack that closes it.

        A request is repeated if the server refuses it for now, and once if its credentials or its CA were renewed.
        """

        async def attempt(credential: Credential) -> tuple[AsyncExitStack, httpx.Response]:
            if (tls := self._credentials.latest.tls) is not self._client.tls:
                before, self._client = self._client, _Client(self.config, tls)
                await before.release()
            client = self._client
            async with AsyncExitStack() as stack:
                built = client.used().build_request(
                    request.method,
                    request.path,
                    params=params,
                    headers=[*headers.items(), *credential.headers],
                    content=content or None,
                    timeout=httpx.Timeout(SILENCE if stream else None, connect=min(seconds / 2, _CONNECT)),
                    extensions={"trace": _closing()},
                )
                built.stream = _Body(content)
                stack.push_async_callback(client.release)
                # A lease is not lost because writes wait for the server.
                queued = not stream and not request.path.startswith("/apis/coordination.k8s.io/")
                answer = None
                try:
                    with trio.move_on_after(seconds) as scope:
                        if queued:
                            await stack.enter_async_context(self._free)
                        queued = False
                        answer = await client.http.send(built, stream=True)
                        stack.push_async_callback(answer.aclose)
                        if not (stream and answer.is_success):
                            await answer.aread()
                except (httpx.HTTPError, UnicodeError) as error:
                    raise failed(error, request) from error
                if queued:
                    text = f"{request} has waited {seconds:g} seconds for other calls: {_MOST_CALLS} are under way"
                    raise NotBegun(Code.DEADLINE_EXCEEDED, f"{text} to {self._where}")
                if answer is None or scope.cancelled_caught:
                    text = f"{self._where} has not answered {request} within {seconds:g} seconds"
                    raise uncertain(request, Code.DEADLINE_EXCEEDED, text)
                self._check(answer, request)
                return stack.pop_all(), answer
            raise AssertionError("unreachable")

        waits, renewed = LimitedWaits(seconds), False
        while True:
            credential = await self._credentials.current()
            try:
                return await attempt(credential)
            except Limited as error:
                await waits.wait(error)
                continue
            except HeadwayError as error:
                retried = isinstance(error, Unauthenticated) or tls_error(error.__cause__)
                if renewed or not retried or isinstance(error, Interrupted):
                    raise
                refusal = error
            # Outside of the block above, so that the refusal is not the context of errors of later attempts.
            if not await self._credentials.renew(credential):
                raise refusal
            renewed = True

    def _check(self, answer: httpx.Response, request: Request) -> None:
        for header in answer.headers.get_list("warning"):
            for text in _WARNING.findall(header):
                if text not in self._warned:
                    if len(self._warned) >= _MOST_WARNINGS:
                        self._warned.clear()
                    self._warned.add(text)
                    self._on_warning(re.sub(r"\\(.)", r"\1", text))
        if not answer.is_success:
            raise refused(answer.status_code, answer.content, answer.headers.get("retry-after"), request)
        if "html" in answer.headers.get("content-type", ""):
            raise no_api_server(request, f"it answered {request} with a web page")


class _Client:
    """An HTTP client with one context of TLS. It is closed by its last `release`; the first one is its owner's."""

    def __init__(self, config: ClusterConfig, tls: ssl.SSLContext | None) -> None:
        self.tls = tls
        self._users = 1
        self.http = httpx.AsyncClient(
            base_url=config.server,
            verify=tls or False,
            proxy=config.proxy,
            limits=_LIMITS,
            headers={"User-Agent": f"headway/{VERSION}"},
            trust_env=False,
        )

    def used(self) -> httpx.AsyncClient:
        self._users += 1
        return self.http

    async def release(self) -> None:
        self._users -= 1
        if not self._users:
            with trio.CancelScope(shield=True):
                await self.http.aclose()


def _closing() -> Callable[[str, Mapping[str, Any]], Awaitable[None]]:
    """Return a trace of httpx that closes a connection whose TLS handshake is canceled. httpx leaves it open."""
    opened: list[Any] = []

    async def trace(event: str, info: Mapping[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            opened.append(info["return_value"])
        elif event == "connection.start_tls.failed":
            await trio.aclose_forcefully(opened[-1])

    return trace


class _Body(httpx.AsyncByteStream):
    """The body of a request. httpx has an async generator for it, which a failed call would leave unfinished."""

    def __init__(self, content: bytes) -> None:
        self._left = [content] if content else []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


async def _lines(answer: httpx.Response, request: Request) -> AsyncGenerator[bytes]:
    """Iterate over the lines of a watch. Line feeds alone separate them: values may have other separators in them."""
    # The parts of a line whose end has not arrived.
    rest: list[bytes] = []
    pieces = answer.aiter_bytes()
    problem = f"{request.where}: the watch of {request.path} failed:"
    try:
        async for piece in pieces:
            first, *others = piece.split(b"\n")
            rest.append(first)
            if others:
                yield b"".join(rest)
                for line in others[:-1]:
                    yield line
                rest = others[-1:]
        if any(rest):
            raise NotBegun(Code.UNAVAILABLE, f"{problem} it ended within an event")
    except httpx.ReadTimeout as error:
        raise NotBegun(Code.UNAVAILABLE, f"{problem} nothing has arrived for {SILENCE:g} seconds") from error
    except httpx.HTTPError as error:
        raise failed(error, request) from error
    finally:
        # Python would otherwise end the generators below outside of their task. They are suspended where they yield, so
        # they are driven to their next read, where they are canceled.
        with trio.CancelScope(shield=True) as scope, suppress(httpx.HTTPError):
            scope.cancel()
            async for _ in pieces:
                pass
