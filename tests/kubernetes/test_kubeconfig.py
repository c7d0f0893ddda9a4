"""Where the API server is and who calls it: kubeconfig files, and the files of a Pod."""

from __future__ import annotations

import base64
import os
import traceback
from pathlib import Path
from typing import Any

import pytest
import yaml

from headway.errors import InvalidArgument
from headway.kubernetes._kubeconfig import ClusterConfig, load_config

PLUGIN = {"apiVersion": "client.authentication.k8s.io/v1", "command": "p", "interactiveMode": "Never"}
PEM = "-----BEGIN CERTIFICATE-----\n"
DATA = base64.b64encode(PEM.encode()).decode()
CONFIG = {"audience": "prod"}


def _text(
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    context: dict[str, Any] | None = None,
    current: str = "prod",
    **top: Any,
) -> str:
    """Return a kubeconfig with one context."""
    fields = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u", **(context or {})}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    return yaml.safe_dump({**fields, **top})


def _load(folder: Path, text: str, **options: Any) -> ClusterConfig:
    file = folder / "config"
    file.write_text(text)
    return load_config(file, environ={}, **options)


def _problem(folder: Path, text: str, **options: Any) -> str:
    with pytest.raises(InvalidArgument) as raised:
        _load(folder, text, **options)
    assert str(folder / "config") in str(raised.value)
    assert "secret" not in "".join(traceback.format_exception(raised.value))
    return str(raised.value)


def test_context_names_the_server_the_namespace_and_where_they_come_from(tmp_path: Path) -> None:
    config = _load(tmp_path, _text(context={"namespace": "shop"}))
    assert (config.server, config.namespace) == ("https://10.0.0.1:6443", "shop")
    assert config.where == f"context prod of {tmp_path / 'config'}"
    assert _load(tmp_path, _text()).namespace == "default"
    assert _load(tmp_path, _text(context={"namespace": "shop"}), namespace="mine").namespace == "mine"


def test_another_context_can_be_named(tmp_path: Path) -> None:
    contexts = [{"name": name, "context": {"cluster": "c", "namespace": name}} for name in ("a", "b")]
    assert _load(tmp_path, _text(contexts=contexts), context="b").namespace == "b"
    assert "did you mean 'prod'" in _problem(tmp_path, _text(), context="prd")
    assert "give context=, one of a, b" in _problem(tmp_path, _text(contexts=contexts, current=""))


def test_files_are_relative_to_the_kubeconfig_that_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ca.pem").write_text(PEM)
    (tmp_path / "token").write_text("t\n")
    monkeypatch.chdir("/")
    config = _load(tmp_path, _text({"certificate-authority": "ca.pem"}, {"tokenFile": "token"}))
    assert config.ca is not None
    assert config.token is not None
    assert (config.ca.read(), config.token.read()) == (PEM, "t\n")


def test_relative_kubeconfig_stays_the_same_file_in_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "config").write_text(_text(user={"tokenFile": "token"}))
    monkeypatch.chdir(tmp_path)
    config = load_config("config", environ={})
    monkeypatch.chdir("/")
    assert config.token is not None
    assert config.token.read() == "t"


def test_content_in_the_kubeconfig_comes_before_a_file(tmp_path: Path) -> None:
    lines = f"{DATA[:8]}\n{DATA[8:]}\n"
    user = {"client-certificate-data": DATA, "client-certificate": "no", "client-key-data": lines}
    config = _load(tmp_path, _text({"certificate-authority-data": DATA}, user))
    for content in (config.ca, config.certificate, config.key):
        assert content is not None
        assert content.read() == PEM


def test_token_file_comes_before_a_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("renewed")
    config = _load(tmp_path, _text(user={"token": "old", "tokenFile": "token"}))
    assert config.token is not None
    assert config.token.read() == "renewed"


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    plugin = {**PLUGIN, "env": [{"name": "KEY", "value": "hidden-1"}]}
    user = {"token": "hidden-2", "client-certificate-data": DATA, "client-key-data": DATA, "exec": plugin}
    config = _load(tmp_path, _text({"proxy-url": "http://u:hidden-3@proxy:1"}, user))
    assert "hidden" not in repr(config)
    assert "BEGIN" not in repr(config)


def test_cluster_has_a_proxy_a_name_and_no_check(tmp_path: Path) -> None:
    cluster = {"proxy-url": "https://proxy:1080", "tls-server-name": "kube", "insecure-skip-tls-verify": True}
    config = _load(tmp_path, _text(cluster))
    assert (config.proxy, config.server_name, config.insecure) == ("https://proxy:1080", "kube", True)


def test_environment_names_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert _load(tmp_path, _text()).proxy is None
    monkeypatch.setenv("ALL_PROXY", "proxy:1")
    assert _load(tmp_path, _text()).proxy == "http://proxy:1"
    assert _load(tmp_path, _text({"proxy-url": "http://other:2"})).proxy == "http://other:2"
    assert load_config(environ=POD, service_account=_pod(tmp_path)).proxy is None
    for url, part in (
        ("ftp://u:secret@p", "got 'ftp://u:…@p'"),
        ("u:secret@p:99999", "got 'http://u:…@p:99999'"),
        ("socks5://u:secret@p", "u:…@p needs another package: pip install 'httpx[socks]'"),
    ):
        monkeypatch.setenv("HTTPS_PROXY", url)
        with pytest.raises(InvalidArgument) as raised:
            _load(tmp_path, _text())
        assert "the environment variable HTTPS_PROXY" in str(raised.value)
        assert part in str(raised.value)
        assert "secret" not in "".join(traceback.format_exception(raised.value))
    monkeypatch.setenv("NO_PROXY", "10.0.0.1")
    assert _load(tmp_path, _text()).proxy is None


@pytest.mark.parametrize(
    ("host", "exceptions", "direct"),
    [
        ("10.0.0.1", "example.org, 10.0.0.0/8", True),
        ("11.0.0.1", "example.org, 10.0.0.0/8", False),
        ("10.0.0.1", "fd00::/8", False),
        ("[fd00::1]", "10.0.0.0/8,fd00::/8", True),
        ("kube.example.org", "10.0.0.0/8,.example.org", True),
        ("kube.example.org", "10.0.0.0/8,", False),
        ("127.0.0.2", "", True),
        ("localhost", "", True),
    ],
)
def test_no_proxy_has_networks_and_this_machine_needs_none(
    host: str, exceptions: str, direct: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    monkeypatch.setenv("NO_PROXY", exceptions)
    monkeypatch.delenv("no_proxy", raising=False)
    config = _load(tmp_path, _text({"server": f"https://{host}:6443"}))
    assert config.proxy == (None if direct else "http://proxy:1")


def test_impersonated_user_has_groups_and_a_uid(tmp_path: Path) -> None:
    user = {"as": "ann", "as-uid": "7", "as-groups": ["a", "b"]}
    assert _load(tmp_path, _text(user=user)).headers == (
        ("Impersonate-User", "ann"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
    )
    assert _load(tmp_path, _text(user={"as-user-extra": {}})).headers == ()
    assert "as of user u" in _problem(tmp_path, _text(user={"as-groups": ["a"]}))
    assert "printable ASCII" in _problem(tmp_path, _text(user={"as": "a\r\nb: c"}))


def test_exec_plugin_has_a_command_beside_the_kubeconfig_and_knows_the_cluster(tmp_path: Path) -> None:
    extensions = [{"name": name, "extension": CONFIG} for name in ("other", "client.authentication.k8s.io/exec")]
    cluster = {"certificate-authority-data": DATA, "tls-server-name": "kube", "extensions": extensions}
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./bin/login",
        "args": ["--quiet"],
        "env": [{"name": "PROFILE", "value": "prod"}],
        "interactiveMode": "IfAvailable",
        "provideClusterInfo": True,
        "installHint": "get it",
    }
    found = _load(tmp_path, _text(cluster, {"exec": plugin})).plugin
    assert found is not None
    assert found.command == (str(tmp_path / "bin/login"), "--quiet")
    assert (found.env, found.interactive, found.hint) == ({"PROFILE": "prod"}, "IfAvailable", "get it")
    assert found.cluster == {
        "server": "https://10.0.0.1:6443",
        "tls-server-name": "kube",
        "certificate-authority-data": DATA,
        "config": CONFIG,
    }
    plugin = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "login"}
    found = _load(tmp_path, _text(cluster, {"exec": plugin})).plugin
    assert found is not None
    assert (found.command, found.interactive, found.cluster) == (("login",), "IfAvailable", None)


# --- Which files --------------------------------------------------------------


def test_of_several_files_the_first_entry_of_a_name_counts(tmp_path: Path) -> None:
    first, second, absent = tmp_path / "first", tmp_path / "second", tmp_path / "absent"
    first.write_text(_text(user={"token": "t"}, clusters=[], current=""))
    second.write_text(_text({"server": "https://second"}, context={"namespace": "second"}))
    config = load_config(environ={"KUBECONFIG": os.pathsep.join(map(str, (absent, first, "", second)))})
    # The user and the context are those of the first file; the cluster and the current context, of the second.
    assert (config.server, config.namespace) == ("https://second", "default")
    assert config.token is not None
    with pytest.raises(InvalidArgument, match="KUBECONFIG names no file that exists"):
        load_config(environ={"KUBECONFIG": str(absent)})
    with pytest.raises(InvalidArgument, match="cannot be read"):
        load_config(absent, environ={})


def _pod(folder: Path) -> Path:
    (folder / "token").write_text("pod-token\n")
    (folder / "ca.crt").write_text(PEM)
    (folder / "namespace").write_text("shop\n")
    return folder


POD_WHERE = "the service account of this Pod"
POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_pod_uses_its_service_account(tmp_path: Path) -> None:
    config = load_config(environ=POD, service_account=_pod(tmp_path))
    assert (config.server, config.namespace, config.where) == ("https://10.96.0.1:443", "shop", POD_WHERE)
    assert config.token is not None
    assert config.ca is not None
    assert (config.token.read(), config.ca.read()) == ("pod-token\n", PEM)
    config = load_config(environ={"KUBERNETES_SERVICE_HOST": "fd00::1"}, service_account=tmp_path, namespace="mine")
    assert (config.server, config.namespace) == ("https://[fd00::1]:443", "mine")


def test_kubeconfig_that_is_asked_for_comes_before_the_pod(tmp_path: Path) -> None:
    _pod(tmp_path)
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(_text())
    file, environ = str(tmp_path / ".kube" / "config"), {**POD, "HOME": str(tmp_path)}
    assert load_config(environ=environ, service_account=tmp_path).where == POD_WHERE
    assert load_config(environ={**environ, "KUBECONFIG": file}, service_account=tmp_path).where != POD_WHERE
    assert load_config(file, environ=environ, service_account=tmp_path).where != POD_WHERE
    assert load_config(context="prod", environ=environ, service_account=tmp_path).where != POD_WHERE
    assert load_config(environ=environ, service_account=tmp_path / "absent").where != POD_WHERE


def test_nothing_configured_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidArgument, match=r"\.kube/config does not exist, KUBECONFIG is not set, and this is no Pod"
    ):
        load_config(environ={"HOME": str(tmp_path)})


# --- Mistakes -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster", "user", "parts"),
    [
        ({"server": ""}, {}, ["server of cluster c", "https://10.0.0.1:6443"]),
        ({"server": "10.0.0.1:6443"}, {}, ["server of cluster c", "'10.0.0.1:6443'"]),
        ({"server": "https://u:secret@10.0.0.1"}, {}, ["server of cluster c", "no user name"]),
        ({"server": "https://[::1"}, {}, ["server of cluster c", "'https://[::1'"]),
        ({"server": "https://10.0.0.1:99999"}, {}, ["server of cluster c", "'https://10.0.0.1:99999'"]),
        ({"server": "https://10.0.0.1 :1"}, {}, ["server of cluster c", "'https://10.0.0.1 :1'"]),
        ({"server": "https://a..b"}, {}, ["server of cluster c", "'https://a..b'"]),
        ({"server": "https://a/?token=secret"}, {}, ["server of cluster c", "'https://a/?…'"]),
        ({"server": "https://a/#secret"}, {}, ["server of cluster c", "'https://a/#…'"]),
        ({"server": "HTTPS://10.0.0.1"}, {}, ["server of cluster c", "such as https://", "'HTTPS://10.0.0.1'"]),
        ({"server": "https://a\0"}, {}, ["server of cluster c", "without NUL"]),
        ({"server": 7}, {}, ["server of cluster c", "expected a text in quotes, got 7"]),
        ({"server": "http://10.0.0.1"}, {"token": "secret"}, ["in plain text", "use https://"]),
        ({"insecure-skip-tls-verify": "yes"}, {}, ["insecure-skip-tls-verify", "true or false"]),
        ({"insecure-skip-tls-verify": True, "certificate-authority-data": DATA}, {}, ["keep one"]),
        ({"certificate-authority-data": "no base64"}, {}, ["certificate-authority-data of cluster c", "base64"]),
        ({"proxy-url": "ftp://u:secret@proxy"}, {}, ["proxy-url of cluster c", "'ftp://u:…@proxy'"]),
        ({"proxy-url": "http://u:secret@proxy:abc"}, {}, ["proxy-url of cluster c", "'http://u:…@proxy:abc'"]),
        ({"proxy-url": "socks5://proxy"}, {}, ["proxy-url of cluster c", "pip install 'httpx[socks]'"]),
        ({}, {"token": 123}, ["token of user u", "a text in quotes"]),
        ({}, {"token": ["secret"]}, ["token of user u", "another type"]),
        ({}, {"client-certificate-data": DATA}, ["client-key of user u", "client-key-data"]),
        ({}, {"client-key": "key.pem"}, ["client-certificate of user u"]),
        ({}, {"username": "ann", "password": "secret"}, ["username of user u", "use a token"]),
        ({}, {"password": "secret"}, ["password of user u", "use a token"]),
        ({}, {"auth-provider": {"name": "gcp"}}, ["auth-provider of user u", "gke-gcloud-auth-plugin"]),
        ({}, {"as": "a", "as-user-extra": {"a": ["b"]}}, ["as-user-extra of user u", "not supported"]),
        ({}, {"as-groups": "a"}, ["as-groups of user u", "expected a list"]),
        ({}, {"exec": "aws"}, ["exec of user u", "expected a mapping"]),
        ({}, {"exec": {**PLUGIN, "apiVersion": "client.authentication.k8s.io/v1alpha1"}}, ["v1alpha1", "update"]),
        ({}, {"exec": {**PLUGIN, "command": ""}}, ["command of exec of user u", "missing"]),
        ({}, {"exec": {**PLUGIN, "interactiveMode": ""}}, ["interactiveMode", "Never, IfAvailable, Always"]),
        ({}, {"exec": {**PLUGIN, "args": [1]}}, ["args of exec of user u", "got 1 in it"]),
        ({}, {"exec": {**PLUGIN, "args": ["a\0secret"]}}, ["args of exec of user u", "NUL (\\0), got one as its char"]),
        ({}, {"exec": {**PLUGIN, "env": [{"name": "A", "value": "\0secret"}]}}, ["env of exec of user u", "NUL"]),
        ({}, {"exec": {**PLUGIN, "env": [{"name": "A=B", "value": "secret"}]}}, ["without =, got 'A=B'"]),
        ({}, {"exec": {**PLUGIN, "env": [{"name": "secret"}]}}, ["env of exec of user u", "AWS_PROFILE"]),
    ],
)
def test_mistake_names_the_file_the_field_and_what_is_right(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], parts: list[str]
) -> None:
    problem = _problem(tmp_path, _text(cluster, user))
    for part in parts:
        assert part in problem


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("token: secret: x", "line 1: invalid YAML"),
        ("- secret", "expected a mapping"),
        ("", "expected a mapping"),
        (_text(clusters=["c"]), "clusters of the file"),
        (_text(users=[{"name": "u", "user": "secret"}]), "users of the file"),
        (_text(clusters=[]), "cluster of context prod"),
        (_text(users=[]), "user of context prod"),
        (_text(context={"cluster": ""}), "cluster of context prod"),
    ],
)
def test_file_of_another_form_is_refused(tmp_path: Path, text: str, part: str) -> None:
    problem = _problem(tmp_path, text)
    assert part in problem


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    config = _load(tmp_path, _text(user={"tokenFile": "token"}))
    assert config.token is not None
    with pytest.raises(InvalidArgument, match=f"tokenFile of user u in .*: {tmp_path}/token cannot be read"):
        config.token.read()
    (tmp_path / "token").write_text("\n")
    with pytest.raises(InvalidArgument, match="token is empty"):
        config.token.read()
