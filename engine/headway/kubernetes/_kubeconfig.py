"""The address of an API server and the credentials for it, from kubeconfig files or the files of a Pod."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml

from headway.base import did_you_mean, repr_text, without_password
from headway.errors import InvalidArgument

T = TypeVar("T")

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The directory with the token, the CA certificates and the namespace of a Pod."""

EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_INTERACTIVE = ("Never", "IfAvailable", "Always")
_NONE: list[Any] = []
_TYPES = {str: "a text in quotes", bool: "true or false", list: "a list", dict: "a mapping"}
_PASSWORD = "API servers accept no passwords: use a token, a certificate or an exec plugin"
_UNSUPPORTED = {
    "auth-provider": "Kubernetes has removed these: use an exec plugin, such as gke-gcloud-auth-plugin, kubelogin or "
    "`aws eks get-token`; the tool of your cloud writes it into the kubeconfig",
    "username": _PASSWORD,
    "password": _PASSWORD,
    "as-user-extra": "not supported: impersonate a user by as, as-uid and as-groups",
}


@dataclass(frozen=True, slots=True)
class Content:
    """A text from a kubeconfig itself, or from a file that may be renewed.

    Attributes:
        where: the field that has it, for errors, such as "certificate-authority of cluster prod in config".
        text: the text if it has no file.
    """

    where: str
    path: Path | None = None
    text: str = field(default="", repr=False)

    def read(self) -> str:
        """Return the text. Raises InvalidArgument if its file cannot be read."""
        if self.path is None:
            return self.text
        try:
            text = self.path.read_text("utf-8", "replace")
        except OSError as error:
            raise InvalidArgument(f"{self.where}: {self.path} cannot be read ({error.strerror})") from error
        if not text.strip():
            raise InvalidArgument(f"{self.where}: {self.path} is empty")
        return text


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A program that prints credentials, as a kubeconfig describes it: the field ``exec`` of a user.

    Attributes:
        where: the field that describes it, for errors.
        command: the program, and its arguments.
        cluster: the fields of the cluster that it gets, or None.
    """

    where: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    version: str
    interactive: str
    cluster: Mapping[str, Any] | None = field(repr=False)
    hint: str


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The address of an API server, and the credentials for it.

    Attributes:
        where: the origin of this configuration, such as "context prod of /home/ann/.kube/config".
        namespace: the namespace for objects that name none.
        ca: the CA certificates (PEM), or None for those of the system.
        server_name: the name in the server's certificate, if it is not the one in the URL.
        proxy: the URL of a proxy, or None.
        certificate: the client's certificate chain (PEM).
        headers: the headers that impersonate another user.
    """

    server: str
    where: str
    namespace: str = "default"
    ca: Content | None = None
    server_name: str | None = None
    insecure: bool = False
    proxy: str | None = field(default=None, repr=False)
    token: Content | None = None
    certificate: Content | None = None
    key: Content | None = None
    plugin: ExecPlugin | None = None
    headers: tuple[tuple[str, str], ...] = ()


def load_config(
    kubeconfig: str | os.PathLike[str] | None = None,
    *,
    context: str | None = None,
    namespace: str | None = None,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> ClusterConfig:
    """Return the address of the API server, and the credentials for it.

    Without ``kubeconfig``, the first of these is used: the files in the variable KUBECONFIG, the files of a Pod unless
    a context is named, and ``~/.kube/config``.

    Raises:
        InvalidArgument: nothing is configured, or the configuration is invalid. The message names the file, the field
            and what would be right.
    """
    if kubeconfig is not None:
        return _of_files([Path(kubeconfig)], context, namespace)
    if listed := [Path(each) for each in environ.get("KUBECONFIG", "").split(os.pathsep) if each]:
        if not (files := [each for each in listed if each.exists()]):
            raise InvalidArgument(f"KUBECONFIG names no file that exists: {environ['KUBECONFIG']}")
        return _of_files(files, context, namespace)
    if context is None and environ.get("KUBERNETES_SERVICE_HOST") and (service_account / "token").exists():
        return _of_pod(environ, service_account, namespace)
    usual = Path(environ.get("HOME") or Path.home()) / ".kube" / "config"
    if not usual.exists():
        raise InvalidArgument(
            f"no cluster is configured: {usual} does not exist, KUBECONFIG is not set, and this is no Pod with a "
            "service account; give a file, such as kubeconfig='admin.conf'"
        )
    return _of_files([usual], context, namespace)


def _of_pod(environ: Mapping[str, str], files: Path, namespace: str | None) -> ClusterConfig:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT") or "443"
    own = files / "namespace"
    return ClusterConfig(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        where="the service account of this Pod",
        namespace=namespace or (own.read_text().strip() if own.exists() else "") or "default",
        ca=Content("the CA of this Pod's service account", files / "ca.crt"),
        token=Content("the token of this Pod's service account", files / "token"),
        # A Pod reaches its API server without a proxy, even if its other connections need one.
        proxy=None,
    )


class _Entry:
    """A mapping of a kubeconfig, whose fields are checked when they are read."""

    def __init__(self, what: str, file: Path, fields: Mapping[str, Any]) -> None:
        self.what = what
        self.file = file
        self.fields = fields

    def where(self, name: str) -> str:
        return f"{name} of {self.what} in {self.file}"

    def wrong(self, name: str, problem: str) -> InvalidArgument:
        return InvalidArgument(f"{self.where(name)}: {problem}")

    def get(self, name: str, default: T) -> T:
        """Return the value of a field, which must have the type of the default, or the default if it is missing."""
        value = self.fields.get(name)
        if value is None:
            return default
        if not isinstance(value, type(default)):
            shown = repr_text(value) if isinstance(value, str | int | float) and name != "token" else "another type"
            raise self.wrong(name, f"expected {_TYPES[type(default)]}, got {shown}")
        if isinstance(value, str):
            self.check_nul(name, value)
        return value

    def check_nul(self, name: str, *values: str) -> None:
        """Raise InvalidArgument for a NUL, which no path, argument, variable or URL can have."""
        for value in values:
            if (at := value.find("\0")) >= 0:
                raise self.wrong(name, f"expected a text without NUL (\\0), got one as its character {at + 1}")

    def texts(self, name: str) -> list[str]:
        values = self.get(name, _NONE)
        for value in values:
            if not isinstance(value, str):
                raise self.wrong(name, f"expected a list of texts in quotes, got {repr_text(value)} in it")
            self.check_nul(name, value)
        return values

    def content(self, name: str) -> Content | None:
        """Return the content that the field NAME-data has in base64, or the field NAME as the path of a file."""
        if data := self.get(f"{name}-data", ""):
            try:
                text = base64.b64decode("".join(data.splitlines()), validate=True).decode("utf-8", "replace")
            except ValueError as error:
                raise self.wrong(f"{name}-data", "expected a PEM file in base64") from error
            return Content(self.where(f"{name}-data"), text=text)
        path = self.get(name, "")
        # A relative path is relative to the file that has it.
        return Content(self.where(name), self.file.parent / path) if path else None


def _url(where: str, url: str, schemes: Sequence[str], example: str) -> str:
    """Return a URL without a slash at its end, or raise InvalidArgument."""
    # A query may be a secret, too.
    shown = re.sub(r"([?#]).+", r"\1…", without_password(url), flags=re.DOTALL)
    try:
        parts = urlsplit(url)
        # The scheme as it is written: an address that begins with HTTPS:// would be none of TLS.
        good = url.partition(":")[0] in schemes and bool((parts.hostname or "").encode("idna"))
        if parts.port == 0 or not good or not url.isprintable() or set(" ?#") & set(url):
            raise ValueError(url)
    except ValueError:
        raise InvalidArgument(f"{where}: expected a URL such as {example}, got {shown!r}") from None
    return url.rstrip("/")


def _proxy(cluster: _Entry, server: str) -> str | None:
    """Return the URL of the proxy for a server: that of its cluster, or the one that the environment names."""
    where, url = cluster.where("proxy-url"), cluster.get("proxy-url", "")
    if not url:
        parts, known = urlsplit(server), getproxies()
        where = f"the environment variable {parts.scheme.upper()}_PROXY or ALL_PROXY"
        url = known.get(parts.scheme) or known.get("all") or ""
        if not url or _is_direct(parts.hostname or "", known.get("no", "")):
            return None
        url = url if "://" in url else f"http://{url}"
    found = _url(where, url, ("http", "https", "socks5", "socks5h"), "http://proxy:3128")
    if found.startswith("socks") and find_spec("socksio") is None:
        raise InvalidArgument(f"{where}: {without_password(found)} needs another package: pip install 'httpx[socks]'")
    return found


def _is_direct(host: str, exceptions: str) -> bool:
    """Return True if no proxy is used for a host, as NO_PROXY says: with networks, and never for this machine."""
    if proxy_bypass(host) or host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    for each in exceptions.split(","):
        with suppress(ValueError):
            if address in ip_network(each.strip(), strict=False):
                return True
    return address.is_loopback


def _parsed(file: Path) -> _Entry:
    try:
        fields = yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise InvalidArgument(f"kubeconfig {file} cannot be read: {error.strerror or error}") from error
    except yaml.YAMLError as error:
        # Its own text quotes the line, which may have a token.
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f", line {mark.line + 1}"
        raise InvalidArgument(f"kubeconfig {file}{line}: invalid YAML; `kubectl config view` must accept it") from None
    if not isinstance(fields, dict):
        raise InvalidArgument(f"kubeconfig {file}: expected a mapping with clusters, users and contexts")
    return _Entry("the file", file.absolute(), fields)


_Entries = dict[str, dict[str, _Entry]]
"""The contexts, clusters and users, by their names."""


def _merged(files: Sequence[Path]) -> tuple[str, _Entries]:
    """Return the current context of several files, and their entries. The first entry of a name counts."""
    current, entries = "", _Entries(context={}, cluster={}, user={})
    for top in map(_parsed, files):
        current = current or top.get("current-context", "")
        for kind, known in entries.items():
            for each in top.get(f"{kind}s", _NONE):
                name = each.get("name") if isinstance(each, dict) else None
                if not isinstance(name, str) or not isinstance(each.get(kind), dict):
                    raise top.wrong(f"{kind}s", f"expected entries like {{name: ..., {kind}: {{...}}}}")
                known.setdefault(name, _Entry(f"{kind} {name}", top.file, each[kind]))
    return current, entries


def _found(entries: _Entries, kind: str, name: str, asked: str) -> _Entry:
    if name not in entries[kind]:
        raise InvalidArgument(f"{asked}: {kind} {name!r} not found{did_you_mean(name, entries[kind])}")
    return entries[kind][name]


def _of_files(files: Sequence[Path], context: str | None, namespace: str | None) -> ClusterConfig:
    current, entries = _merged(files)
    shown = ", ".join(map(str, files))
    name = context or current
    if not name:
        known = ", ".join(sorted(entries["context"])) or "none"
        raise InvalidArgument(
            f"{shown} has no current-context: give context=, one of {known}, or run `kubectl config use-context`"
        )
    chosen = _found(entries, "context", name, f"context= or current-context of {shown}")
    cluster = _found(entries, "cluster", chosen.get("cluster", ""), chosen.where("cluster"))
    user = _Entry("no user", chosen.file, {})
    if user_name := chosen.get("user", ""):
        user = _found(entries, "user", user_name, chosen.where("user"))
    for field_name, problem in _UNSUPPORTED.items():
        if user.fields.get(field_name):
            raise user.wrong(field_name, problem)
    server = _url(cluster.where("server"), cluster.get("server", ""), ("http", "https"), "https://10.0.0.1:6443")
    if "@" in server:
        raise cluster.wrong("server", "the URL must have no user name: use a token, a certificate or an exec plugin")
    insecure, ca = cluster.get("insecure-skip-tls-verify", False), cluster.content("certificate-authority")
    if insecure and ca is not None:
        raise cluster.wrong("insecure-skip-tls-verify", "true, although a certificate-authority is given; keep one")
    certificate, key = user.content("client-certificate"), user.content("client-key")
    if (certificate is None) != (key is None):
        missing = "client-certificate" if certificate is None else "client-key"
        raise user.wrong(missing, f"missing: give it, or {missing}-data; a certificate and its key belong together")
    token, plugin = user.content("tokenFile"), _plugin(user, cluster, server)
    if token is None and (text := user.get("token", "")):
        token = Content(user.where("token"), text=text)
    if server.startswith("http://") and (token or certificate or plugin):
        raise cluster.wrong("server", f"{server} would send the credentials of {user.what} in plain text; use https://")
    return ClusterConfig(
        server=server,
        where=f"context {name} of {shown}",
        namespace=namespace or chosen.get("namespace", "") or "default",
        ca=ca,
        server_name=cluster.get("tls-server-name", "") or None,
        insecure=insecure,
        proxy=_proxy(cluster, server),
        token=token,
        certificate=certificate,
        key=key,
        plugin=plugin,
        headers=_impersonation(user),
    )


def _plugin(user: _Entry, cluster: _Entry, server: str) -> ExecPlugin | None:
    fields: dict[str, Any] = user.get("exec", {})
    if not fields:
        return None
    entry = _Entry(f"exec of {user.what}", user.file, fields)
    version, command = entry.get("apiVersion", ""), entry.get("command", "")
    if version not in EXEC_VERSIONS:
        right = "update the plugin, and write its entry anew with the tool of your cloud"
        raise entry.wrong("apiVersion", f"expected {' or '.join(EXEC_VERSIONS)}, got {version!r}; {right}")
    if not command:
        raise entry.wrong("command", "missing: give the program that prints the credentials")
    if os.path.dirname(command):
        command = str(entry.file.parent / command)
    interactive = entry.get("interactiveMode", "") or ("" if version == EXEC_VERSIONS[0] else "IfAvailable")
    if interactive not in _INTERACTIVE:
        raise entry.wrong("interactiveMode", f"expected one of {', '.join(_INTERACTIVE)}, got {interactive!r}")
    env: dict[str, str] = {}
    for each in entry.get("env", _NONE):
        match each:
            case {"name": str(variable), "value": str(value)}:
                entry.check_nul("env", variable, value)
                if "=" in variable:
                    raise entry.wrong("env", f"expected a name without =, got {repr_text(variable)}")
                env[variable] = value
            case _:
                right = "expected entries like {name: AWS_PROFILE, value: prod}, with texts in quotes"
                raise entry.wrong("env", right)
    given = None
    if entry.get("provideClusterInfo", False):
        shown = ("tls-server-name", "insecure-skip-tls-verify", "proxy-url")
        given = {"server": server} | {name: cluster.fields[name] for name in shown if cluster.fields.get(name)}
        if ca := cluster.content("certificate-authority"):
            given["certificate-authority-data"] = base64.b64encode(ca.read().encode()).decode()
        for each in cluster.get("extensions", _NONE):
            if isinstance(each, dict) and each.get("name") == "client.authentication.k8s.io/exec":
                given["config"] = each.get("extension")
    command_line = (command, *entry.texts("args"))
    return ExecPlugin(user.where("exec"), command_line, env, version, interactive, given, entry.get("installHint", ""))


def _impersonation(user: _Entry) -> tuple[tuple[str, str], ...]:
    """Return the headers that impersonate another user."""
    name = user.get("as", "")
    found = [("Impersonate-User", name), ("Impersonate-Uid", user.get("as-uid", ""))]
    found += [("Impersonate-Group", group) for group in user.texts("as-groups")]
    given = tuple((header, value) for header, value in found if value)
    if given and not name:
        raise user.wrong("as", "missing: as-uid and as-groups need the name of the user")
    for header, value in given:
        if not value.isascii() or not value.isprintable():
            raise user.wrong("as", f"{header} must have printable ASCII characters, got {repr_text(value)}")
    return given
