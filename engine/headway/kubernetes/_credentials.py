"""The credentials for an API server: tokens, certificates and plugins. They are renewed while the program runs."""

from __future__ import annotations

import datetime
import json
import math
import os
import re
import ssl
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import trio

from headway.api import Code, NotBegun
from headway.base import bounded, plain, utc_now
from headway.errors import InvalidArgument
from headway.kubernetes._kubeconfig import ClusterConfig, ExecPlugin

_READ_AGAIN = 60.0
"""The seconds after which files are read again: tokens of service accounts and certificates are renewed."""

_AFTER_FAILURE = 5.0
"""The seconds after which a bad file is read again, and a plugin may run again."""

PLUGIN_DEADLINE = 60.0
"""The seconds that a plugin has. Some of them ask a server for a token."""

_EARLY = datetime.timedelta(seconds=2 * PLUGIN_DEADLINE)
"""A plugin runs again this long before its token expires, or after a quarter of the token's life if that is later."""

_CERTIFICATE = re.compile("-----BEGIN [A-Z0-9 ]*CERTIFICATE-----.*?-----END [A-Z0-9 ]*CERTIFICATE-----", re.DOTALL)
_TOKEN = "one line of ASCII characters without spaces"


@dataclass(frozen=True, slots=True, eq=False)
class Credential:
    """The headers, and the context of TLS or None for plain HTTP. A renewed credential is another object."""

    headers: tuple[tuple[str, str], ...] = field(repr=False)
    tls: ssl.SSLContext | None


class _Texts(NamedTuple):
    """The texts that a credential is made of."""

    ca: str = ""
    token: str = ""
    certificate: str = ""
    key: str = ""


class Credentials:
    """The credentials for a cluster, which it reads again each minute and after the server has refused them.

    Args:
        warn: called with a sentence when a file has become unusable, so that its last good content stays in use, and
            when the plugin has failed before its last token has expired.
        tasks: the nursery in which the plugin runs, so that it goes on when a call that waits for it ends.
    """

    def __init__(self, config: ClusterConfig, warn: Callable[[str], object], tasks: trio.Nursery) -> None:
        self._config = config
        self._warn = warn
        self._tasks = tasks
        self._latest: Credential | None = None
        self._made_of = _Texts()
        self._until = -math.inf
        self._printed = _Texts()
        self._expires: datetime.datetime | None = None
        self._ran_at = -math.inf
        self._failure: NotBegun | None = None
        # As for kubectl, a token comes before a plugin.
        self._plugin = config.plugin if config.token is None else None
        self._due = None if self._plugin is None else datetime.datetime.min.replace(tzinfo=datetime.UTC)
        self._ended = trio.Event()
        self._ended.set()

    async def current(self) -> Credential:
        """Return the credential for a request.

        Raises:
            InvalidArgument: a file cannot be read, or has no valid content, and nothing valid was read before.
            Unavailable: the plugin has failed.
        """
        if self._due is not None and utc_now() >= self._due:
            await self._renew_token(wait=self._latest is None or self._is_expired())
        if trio.current_time() >= self._until:
            self._read()
        return self.latest

    @property
    def latest(self) -> Credential:
        """The credential that `current` has returned last."""
        assert self._latest is not None
        return self._latest

    async def renew(self, refused: Credential) -> bool:
        """Read everything again after the server has refused a credential. Return True if there is another one now."""
        if self._latest is refused:
            await self._renew_token(wait=True)
        # Another task may have read it while this one waited.
        if self._latest is refused:
            self._read()
        return self._latest is not refused

    def _is_expired(self) -> bool:
        return self._expires is not None and utc_now() >= self._expires

    def _read(self) -> None:
        now = trio.current_time()
        try:
            texts = self._read_files()
            if self._latest is None or texts != self._made_of:
                self._latest, self._made_of = self._made(texts), texts
            self._until = now + _READ_AGAIN
        except InvalidArgument as error:
            # While a file is being replaced, its old content is still good.
            if self._latest is None:
                raise
            self._until = now + _AFTER_FAILURE
            self._warn(f"{error}. Its last good content stays in use")

    async def _renew_token(self, *, wait: bool) -> None:
        """Run the plugin, if there is one, unless it is running or has just run. Raise its error, if asked to wait."""
        if self._plugin is None:
            return
        if self._ended.is_set() and trio.current_time() - self._ran_at > _AFTER_FAILURE:
            self._ended = trio.Event()
            self._tasks.start_soon(self._run, self._plugin)
        if wait:
            await self._ended.wait()
            if self._failure is not None:
                raise NotBegun(*self._failure.args)

    async def _run(self, plugin: ExecPlugin) -> None:
        try:
            self._printed, self._expires = await _run(plugin)
            self._due = self._expires and self._expires - min(_EARLY, 0.75 * (self._expires - utc_now()))
            self._failure, self._until = None, -math.inf
        except NotBegun as error:
            self._failure = error
            if self._latest is not None and not self._is_expired():
                self._warn(f"{error}. Its last credentials stay in use")
        self._ran_at = trio.current_time()
        self._ended.set()

    def _made(self, texts: _Texts) -> Credential:
        headers, tls = self._config.headers, None
        if texts.token:
            headers = (("Authorization", f"Bearer {texts.token}"), *headers)
        if self._config.server.startswith("https://"):
            # Another context means new connections. Another token alone needs none.
            same = self._made_of._replace(token=texts.token) == texts
            tls = self._latest.tls if self._latest and same else _context(self._config, texts)
        return Credential(headers, tls)

    def _read_files(self) -> _Texts:
        config, texts = self._config, self._printed
        if config.token is not None:
            token = config.token.read().strip()
            if not _is_token(token):
                raise InvalidArgument(f"{config.token.where}: invalid token: it must be {_TOKEN}")
            texts = texts._replace(token=token)
        if config.certificate is not None and config.key is not None:
            texts = texts._replace(certificate=config.certificate.read(), key=config.key.read())
        return texts if config.ca is None else texts._replace(ca=config.ca.read())


def _is_token(text: str) -> bool:
    # httpx would show another one in its error.
    return text.isascii() and text.isprintable() and " " not in text


class _Context(ssl.SSLContext):
    """A context that checks ``server_name``. Behind a proxy, the HTTP client would always give the address's name."""

    server_name: str | None = None

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        return super().wrap_bio(*args, **options | ({"server_hostname": self.server_name} if self.server_name else {}))


def _context(config: ClusterConfig, texts: _Texts) -> ssl.SSLContext:
    # Other clients of Kubernetes trust each given certificate, also an intermediate one and one that is not strict.
    context = _Context(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.server_name = config.server_name
    if config.ca is None:
        context.load_default_certs()
    else:
        try:
            # Comments between certificates may have any characters.
            context.load_verify_locations(cadata="\n".join(_CERTIFICATE.findall(texts.ca)))
        except (ssl.SSLError, ValueError) as error:
            right = "give CA certificates in PEM form"
            raise InvalidArgument(f"{config.ca.where}: invalid certificate: {right}") from error
    if config.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if not texts.certificate:
        return context
    try:
        load_certificate(context, texts.certificate, texts.key)
    except (ssl.SSLError, ValueError) as error:
        where = next((each.where for each in (config.certificate, config.plugin) if each), config.where)
        raise InvalidArgument(
            f"{where}: the client certificate cannot be used ({getattr(error, 'reason', None) or 'invalid PEM'}): "
            "give a certificate in PEM form and its own key, without a password"
        ) from error
    return context


def load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a certificate and its key, as PEM. Raises SSLError or ValueError, and never prompts for a password."""
    # Python reads them from a file alone. A Pod may have none that it can write, and no key should be on a disk.
    in_memory = sys.platform == "linux"
    with open(os.memfd_create("headway"), "wb") if in_memory else tempfile.NamedTemporaryFile() as file:
        file.write(f"{certificate.rstrip()}\n{key.rstrip()}\n".encode())
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}" if in_memory else file.name, password="")


async def _run(plugin: ExecPlugin) -> tuple[_Texts, datetime.datetime | None]:
    """Run a plugin, and return its credentials and the time of their expiry. Raises Unavailable."""
    terminal = plugin.interactive != "Never" and sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive == "Always" and not terminal:
        raise _failed(plugin, "it needs a terminal (interactiveMode: Always), and this process has none")
    spec = {"interactive": terminal} | ({"cluster": plugin.cluster} if plugin.cluster is not None else {})
    info = json.dumps({"kind": "ExecCredential", "apiVersion": plugin.version, "spec": spec}, default=str)
    try:
        with trio.fail_after(PLUGIN_DEADLINE):
            ended = await trio.run_process(
                plugin.command,
                stdin=None if terminal else b"",
                capture_stdout=True,
                capture_stderr=not terminal,
                check=False,
                env={**os.environ, **plugin.env, "KUBERNETES_EXEC_INFO": info},
            )
    except trio.TooSlowError:
        raise _failed(plugin, f"it has not ended after {PLUGIN_DEADLINE:g} seconds") from None
    except (OSError, ValueError) as error:
        hint = bounded(plain(plugin.hint or "install it"), 500)
        reason = getattr(error, "strerror", None) or error
        raise _failed(plugin, f"it cannot be started ({reason}): {hint}") from error
    if ended.returncode:
        said = bounded(plain((ended.stderr or b"")[-1_000:].decode(errors="replace").strip()), 500)
        raise _failed(plugin, f"it has ended with status {ended.returncode}" + (f" and said {said!r}" if said else ""))
    return _printed(plugin, ended.stdout)


def _printed(plugin: ExecPlugin, output: bytes) -> tuple[_Texts, datetime.datetime | None]:
    # The output has the credentials, so that no error may show it.
    try:
        answer = json.loads(output)
        status: Mapping[str, Any] = answer["status"]
        names = ("token", "clientCertificateData", "clientKeyData", "expirationTimestamp")
        token, certificate, key, expires = (status.get(name) or "" for name in names)
        if answer["kind"] != "ExecCredential" or answer["apiVersion"] != plugin.version:
            raise ValueError("another kind or apiVersion")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        right = f"an ExecCredential of {plugin.version} in JSON, with a status"
        raise _failed(plugin, f"it has printed something else than {right}") from None
    texts = (token, certificate, key)
    good = all(isinstance(each, str) for each in texts) and bool(certificate) == bool(key) and any(texts)
    if not good or not _is_token(token):
        right = f"a token, {_TOKEN}, or clientCertificateData and clientKeyData"
        raise _failed(plugin, f"its status must have {right}")
    try:
        moment = datetime.datetime.fromisoformat(expires) if expires else None
        if moment is not None and moment.tzinfo is None:
            raise ValueError("no offset")
    except (ValueError, TypeError):
        right = f"like 2026-12-01T10:00:00Z, not {expires!r}"
        raise _failed(plugin, f"its expirationTimestamp must be {right}") from None
    return _Texts("", token, certificate, key), moment


def _failed(plugin: ExecPlugin, problem: str) -> NotBegun:
    text = f"{plugin.where}: no credentials from the plugin {plugin.command[0]}: {problem}"
    return NotBegun(Code.UNAVAILABLE, text)
