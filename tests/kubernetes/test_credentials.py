"""Credentials that are renewed while the program runs: files, and exec plugins."""

from __future__ import annotations

import datetime
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trustme
from trio.testing import MockClock

from headway.api import Interrupted
from headway.base import WALL
from headway.errors import HeadwayError, InvalidArgument, Unauthenticated, Unavailable
from headway.kubernetes import _credentials
from headway.kubernetes._credentials import Credential, Credentials
from headway.kubernetes._http import ApiServer
from headway.kubernetes._kubeconfig import EXEC_VERSIONS, ClusterConfig, Content, ExecPlugin
from tests.kubernetes.conftest import RealServer
from tests.kubernetes.faulty_server import Answer, Connection, answer, faulty_server, pieces, refusal, stall

PODS = "/api/v1/pods"


def _token(credential: Credential) -> str:
    return dict(credential.headers).get("Authorization", "").removeprefix("Bearer ")


def _of_files(folder: Path, **fields: Any) -> ClusterConfig:
    return ClusterConfig("http://10.0.0.1", "a test", token=Content("its token", folder / "token"), **fields)


# --- Files --------------------------------------------------------------------


async def test_token_is_read_again_each_minute(
    tmp_path: Path, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    (tmp_path / "token").write_text("one\n")
    credentials = Credentials(_of_files(tmp_path), pytest.fail, nursery)
    first = await credentials.current()
    (tmp_path / "token").write_text("two\n")
    await trio.sleep(59)
    assert await credentials.current() is first
    await trio.sleep(2)
    assert (_token(first), _token(await credentials.current())) == ("one", "two")


async def test_refused_token_is_read_again_at_once(
    tmp_path: Path, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    (tmp_path / "token").write_text("one")
    credentials = Credentials(_of_files(tmp_path), pytest.fail, nursery)
    first = await credentials.current()
    assert not await credentials.renew(first), "the same token would be refused again"
    (tmp_path / "token").write_text("two")
    assert await credentials.renew(first)
    assert await credentials.renew(first), "another task has renewed it already"
    assert _token(await credentials.current()) == "two"


async def test_last_good_content_is_used_while_a_file_is_bad(
    tmp_path: Path, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    warnings: list[str] = []
    (tmp_path / "token").write_text("one")
    credentials = Credentials(_of_files(tmp_path), warnings.append, nursery)
    first = await credentials.current()
    for bad in ("", "a token\nof lines"):
        (tmp_path / "token").write_text(bad)
        await trio.sleep(61)
        assert await credentials.current() is first
    (tmp_path / "token").write_text("two")
    await trio.sleep(6)
    assert _token(await credentials.current()) == "two"
    assert [each.partition(": ")[0] for each in warnings] == ["its token"] * 2
    assert "of lines" not in "".join(warnings)


@pytest.mark.parametrize("text", ["a b", "a\nb", "ä", ""])
async def test_token_that_no_header_can_have_is_refused_at_the_beginning(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(InvalidArgument, match="its token"):
        async with ApiServer(_of_files(tmp_path)):
            pass


async def test_call_uses_the_token_that_was_renewed_after_it_was_refused(tmp_path: Path) -> None:
    """The call is repeated on the connection that is open, because the certificate has not changed."""
    (tmp_path / "token").write_text("one")
    answers = (answer(body={}), answer(401, refusal(401)), answer(body={"a": 1}))
    async with faulty_server(*answers) as faulty:
        config = faulty.config(token=Content("its token", tmp_path / "token"))
        async with ApiServer(config) as server:
            await server.call("GET", PODS)
            (tmp_path / "token").write_text("two")
            assert await server.call("POST", PODS) == {"a": 1}
        used = [seen.header("authorization") for seen in faulty.seen]
        assert used == ["Bearer one", "Bearer one", "Bearer two"]
        assert faulty.connections == 1


async def test_write_that_may_be_stored_is_not_repeated_with_a_renewed_token(tmp_path: Path) -> None:
    async def garble(connection: Connection) -> None:
        await cast("trio.SSLStream[trio.SocketStream]", connection.stream).transport_stream.send_all(b"no TLS")
        await stall(connection)

    (tmp_path / "token").write_text("one")
    async with faulty_server(answer(body={}), garble, answer(body={})) as faulty:
        config = faulty.config(token=Content("its token", tmp_path / "token"))
        async with ApiServer(config) as server:
            await server.call("GET", PODS)
            (tmp_path / "token").write_text("two")
            with pytest.raises(Interrupted, match="TLS failed during POST"):
                await server.call("POST", PODS)
        assert [seen.method for seen in faulty.seen] == ["GET", "POST"]


async def test_token_of_a_service_account_calls_a_real_server(
    server: ApiServer, api_server: RealServer, namespace: str, tmp_path: Path
) -> None:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await server.call("POST", accounts, body={"metadata": {"name": "me"}})
    issued = await server.call("POST", f"{accounts}/me/token", body={"spec": {}})
    (tmp_path / "token").write_text("not-yet")
    config = replace(api_server.config(), token=Content("its token", tmp_path / "token"))
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    async with ApiServer(config) as mine:
        with pytest.raises(Unauthenticated):
            await mine.call("POST", path, body=review)
        (tmp_path / "token").write_text(issued["status"]["token"])
        found = await mine.call("POST", path, body=review)
    assert found["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:me"


# --- Certificates -------------------------------------------------------------


async def test_renewed_authority_is_trusted_and_old_watches_go_on(tmp_path: Path) -> None:
    more = trio.Event()

    async def wait(connection: Connection) -> None:
        await more.wait()
        await connection.piece(b"b\n")
        await stall(connection)

    async with faulty_server(pieces(b"a\n", ending=wait), answer(body={})) as faulty:
        ca = tmp_path / "ca.pem"
        faulty.ca.cert_pem.write_to_path(str(ca))
        async with ApiServer(faulty.config(ca=Content("its CA", ca))) as server, server.watch(PODS) as lines:
            assert await anext(lines) == b"a"
            other = trustme.CA()
            faulty.tls = faulty.context(other)
            other.cert_pem.write_to_path(str(ca))
            await server.call("POST", PODS)
            more.set()
            assert await anext(lines) == b"b"
        assert [seen.method for seen in faulty.seen] == ["GET", "POST"]


async def test_intermediate_authority_can_be_trusted_alone(tmp_path: Path) -> None:
    async with faulty_server(answer(body={})) as faulty:
        intermediate = faulty.ca.create_child_ca()
        faulty.tls = faulty.context(intermediate)
        intermediate.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        async with ApiServer(faulty.config(ca=Content("its CA", tmp_path / "ca.pem"))) as server:
            await server.call("GET", PODS)


async def test_authorities_may_have_comments_of_any_characters(tmp_path: Path) -> None:
    async with faulty_server(answer(body={})) as faulty:
        pem = faulty.ca.cert_pem.bytes()
        (tmp_path / "ca.pem").write_bytes(b"# F\xe9\n" + "# Főtanúsítvány\n".encode() + pem + b"\xff\n" + pem)
        async with ApiServer(faulty.config(ca=Content("its CA", tmp_path / "ca.pem"))) as server:
            await server.call("GET", PODS)


def _pair(ca: trustme.CA, name: str) -> tuple[str, str]:
    issued = ca.issue_cert(name)
    return b"".join(each.bytes() for each in issued.cert_chain_pems).decode(), issued.private_key_pem.bytes().decode()


def _name_of(connection: Connection) -> str:
    """Return the name in the certificate of a client."""
    assert isinstance(connection.stream, trio.SSLStream)
    found: dict[str, Any] = connection.stream.getpeercert()
    return str(found["subjectAltName"][0][1])


async def test_renewed_client_certificate_is_used_for_new_connections(tmp_path: Path) -> None:
    names: list[str] = []

    def noting(then: Answer) -> Answer:
        async def give(connection: Connection) -> None:
            names.append(_name_of(connection))
            await then(connection)

        return give

    async with faulty_server(
        noting(answer(body={})), noting(answer(401, refusal(401))), noting(answer(body={}))
    ) as faulty:
        faulty.require_certificate()

        def write(name: str) -> None:
            for file, text in zip(("cert.pem", "key.pem"), _pair(faulty.ca, name), strict=True):
                (tmp_path / file).write_text(text)

        write("one.example")
        certificate, key = (Content(each, tmp_path / each) for each in ("cert.pem", "key.pem"))
        async with ApiServer(faulty.config(token=None, certificate=certificate, key=key)) as server:
            await server.call("GET", PODS)
            write("two.example")
            await server.call("GET", PODS)
        assert names == ["one.example", "one.example", "two.example"]


async def test_certificate_and_key_that_do_not_match_are_refused(nursery: trio.Nursery) -> None:
    ca = trustme.CA()
    (certificate, _), (_, key) = _pair(ca, "a.example"), _pair(ca, "b.example")
    config = ClusterConfig(
        "https://10.0.0.1",
        "a test",
        certificate=Content("client-certificate of user u", text=certificate),
        key=Content("client-key of user u", text=key),
    )
    with pytest.raises(InvalidArgument, match=r"client-certificate of user u.*KEY_VALUES_MISMATCH") as raised:
        await Credentials(config, pytest.fail, nursery).current()
    assert "PRIVATE" not in str(raised.value)
    with pytest.raises(InvalidArgument, match="its CA: invalid certificate"):
        await Credentials(replace(config, ca=Content("its CA", text="no PEM")), pytest.fail, nursery).current()


# --- Plugins ------------------------------------------------------------------

# Prints what the test has written into `answer`, and notes each run.
PROGRAM = """
import json, os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
with open(folder / "runs", "a") as runs:
    told = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
    print(json.dumps([told, os.environ.get("PROFILE"), sys.stdin.read()]), file=runs)
exec((folder / "also").read_text() if (folder / "also").exists() else "")
print((folder / "answer").read_text())
"""


class Plugin:
    """An exec plugin: a real program that prints what the test says."""

    def __init__(self, folder: Path, nursery: trio.Nursery) -> None:
        self.folder = folder
        self.nursery = nursery
        self.warnings: list[str] = []
        (folder / "plugin.py").write_text(PROGRAM)
        self.config = ExecPlugin(
            where="exec of user u",
            command=(sys.executable, str(folder / "plugin.py"), str(folder)),
            env={"PROFILE": "prod"},
            version=EXEC_VERSIONS[0],
            interactive="IfAvailable",
            cluster=None,
            hint="",
        )

    def prints(self, version: str = EXEC_VERSIONS[0], **status: str) -> None:
        answer = {"kind": "ExecCredential", "apiVersion": version, "status": status}
        (self.folder / "answer").write_text(json.dumps(answer))

    def does(self, code: str) -> None:
        (self.folder / "also").write_text(code)

    def credentials(self, **fields: Any) -> Credentials:
        config = ClusterConfig("http://10.0.0.1", "a test", plugin=replace(self.config, **fields))
        return Credentials(config, self.warnings.append, self.nursery)

    @property
    def runs(self) -> list[Any]:
        file = self.folder / "runs"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
async def plugin(tmp_path: Path, nursery: trio.Nursery) -> Plugin:
    return Plugin(tmp_path, nursery)


@pytest.mark.parametrize("version", EXEC_VERSIONS)
async def test_plugin_is_told_the_cluster_and_gives_a_token(plugin: Plugin, version: str) -> None:
    plugin.prints(version, token="one")
    credentials = plugin.credentials(cluster={"server": "https://10.0.0.1"}, version=version)
    assert _token(await credentials.current()) == "one"
    assert await credentials.current() is await credentials.current()
    info = {
        "kind": "ExecCredential",
        "apiVersion": version,
        "spec": {"interactive": False, "cluster": {"server": "https://10.0.0.1"}},
    }
    assert plugin.runs == [[info, "prod", ""]]


async def test_plugin_gives_a_client_certificate(plugin: Plugin) -> None:
    async with faulty_server(answer(body={})) as faulty:
        faulty.require_certificate()
        certificate, key = _pair(faulty.ca, "plugin.example")
        plugin.prints(clientCertificateData=certificate, clientKeyData=key)
        async with ApiServer(faulty.config(token=None, plugin=plugin.config)) as server:
            await server.call("GET", PODS)
        assert faulty.seen[0].header("authorization") is None


def _wall(now: float) -> Callable[[], float]:
    return lambda: now


async def test_plugin_runs_again_when_its_token_has_expired(plugin: Plugin, mock_clock: MockClock) -> None:
    noon = datetime.datetime(2026, 12, 1, 12, tzinfo=datetime.UTC)
    WALL.set(_wall(noon.timestamp()))
    plugin.prints(token="one", expirationTimestamp="2026-12-01T13:00:00+01:00")
    credentials = plugin.credentials()
    assert _token(await credentials.current()) == "one"
    plugin.prints(token="two", expirationTimestamp="2026-12-01T13:00:00Z")
    mock_clock.jump(6)
    assert _token(await credentials.current()) == "two", "the first one expired at noon"
    mock_clock.jump(3000)
    assert _token(await credentials.current()) == "two"
    assert len(plugin.runs) == 2
    WALL.set(_wall(noon.timestamp() + 3600))
    plugin.prints(token="three")
    assert _token(await credentials.current()) == "three"


NOON = datetime.datetime(2026, 12, 1, 12, tzinfo=datetime.UTC).timestamp()
WAIT = "while not (folder / 'go').exists(): time.sleep(0.01)"


async def test_plugin_goes_on_when_the_call_that_waits_for_it_ends(plugin: Plugin) -> None:
    plugin.does(WAIT)
    plugin.prints(token="one")
    credentials = plugin.credentials()
    with trio.move_on_after(0.1) as scope:
        await credentials.current()
    assert scope.cancelled_caught
    (plugin.folder / "go").touch()
    assert _token(await credentials.current()) == "one"
    assert len(plugin.runs) == 1


async def test_plugin_runs_before_its_token_expires_while_that_is_used(plugin: Plugin, mock_clock: MockClock) -> None:
    WALL.set(_wall(NOON))
    plugin.prints(token="one", expirationTimestamp="2026-12-01T12:10:00Z")
    credentials = plugin.credentials()
    first = await credentials.current()
    mock_clock.jump(470)
    WALL.set(_wall(NOON + 470))
    assert await credentials.current() is first
    assert credentials._ended.is_set(), "the token is good for 130 seconds"
    plugin.does(WAIT)
    plugin.prints(token="two", expirationTimestamp="2026-12-01T12:20:00Z")
    WALL.set(_wall(NOON + 490))
    for _ in range(3):
        assert await credentials.current() is first
    assert not credentials._ended.is_set()
    (plugin.folder / "go").touch()
    assert await credentials.renew(first), "waits for the plugin"
    assert _token(await credentials.current()) == "two"
    assert len(plugin.runs) == 2


async def test_plugin_that_fails_before_its_token_expires_is_reported(plugin: Plugin, mock_clock: MockClock) -> None:
    WALL.set(_wall(NOON))
    plugin.prints(token="one", expirationTimestamp="2026-12-01T12:00:40Z")
    credentials = plugin.credentials()
    first = await credentials.current()
    plugin.does("sys.exit('no session')")
    for seconds in (9, 11):
        mock_clock.jump(seconds)
        WALL.set(_wall(NOON + seconds))
        assert await credentials.current() is first
        assert credentials._ended.is_set() is (seconds == 9), "it runs after a quarter of the token's life"
    with pytest.raises(Unavailable, match="no session"):
        await credentials.renew(first)
    assert await credentials.current() is first
    [warning] = plugin.warnings
    assert "no session" in warning
    assert "Its last credentials stay in use" in warning
    WALL.set(_wall(NOON + 40))
    with pytest.raises(Unavailable, match="no session"):
        await credentials.current()


async def test_plugin_runs_once_for_many_refused_calls(plugin: Plugin, mock_clock: MockClock) -> None:
    plugin.prints(token="one")
    credentials = plugin.credentials()
    first = await credentials.current()
    assert not await credentials.renew(first), "it has run a moment ago"
    plugin.prints(token="two")
    mock_clock.jump(11)
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(credentials.renew, first)
    assert _token(await credentials.current()) == "two"
    mock_clock.jump(11)
    assert await credentials.renew(first), "another one is in use already"
    assert len(plugin.runs) == 2


async def test_plugin_that_fails_is_not_run_for_each_call(plugin: Plugin, mock_clock: MockClock) -> None:
    plugin.does("sys.exit('no session: run login')")
    credentials = plugin.credentials()
    for _ in range(5):
        with pytest.raises(Unavailable, match="ended with status 1 and said 'no session: run login'"):
            await credentials.current()
    assert len(plugin.runs) == 1
    mock_clock.jump(6)
    plugin.does("")
    plugin.prints(token="one")
    assert _token(await credentials.current()) == "one"


async def test_token_comes_before_a_plugin(plugin: Plugin, nursery: trio.Nursery) -> None:
    config = ClusterConfig("http://10.0.0.1", "a test", token=Content("t", text="one"), plugin=plugin.config)
    assert _token(await Credentials(config, pytest.fail, nursery).current()) == "one"
    assert plugin.runs == []


async def test_plugin_that_hangs_is_ended(plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_credentials, "PLUGIN_DEADLINE", 0.5)
    plugin.does("time.sleep(1000)")
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"it has not ended after 0\.5 seconds"):
        await plugin.credentials().current()
    assert time.monotonic() - began < 20


SECRET = "hidden-token"


@pytest.mark.parametrize(
    ("printed", "part"),
    [
        (f"token: {SECRET}", "something else than an ExecCredential"),
        ("[" * 100_000, "something else than an ExecCredential"),
        (json.dumps([SECRET]), "something else than an ExecCredential"),
        ({"kind": "ExecCredential", "apiVersion": EXEC_VERSIONS[0]}, "something else than an ExecCredential"),
        ({"kind": "Token", "apiVersion": EXEC_VERSIONS[0], "status": {"token": SECRET}}, "an ExecCredential of client"),
        ({"kind": "ExecCredential", "apiVersion": "v1", "status": {"token": SECRET}}, "an ExecCredential of client"),
        ({}, "must have a token"),
        ({"token": 7}, "must have a token"),
        ({"clientCertificateData": SECRET}, "or clientCertificateData and clientKeyData"),
        ({"token": f"{SECRET} two"}, "one line of ASCII characters"),
        ({"token": SECRET, "expirationTimestamp": "tomorrow"}, "2026-12-01T10:00:00Z, not 'tomorrow'"),
        ({"token": SECRET, "expirationTimestamp": "2026-12-01T10:00:00"}, "2026-12-01T10:00:00Z, not"),
    ],
)
async def test_odd_output_of_a_plugin_is_explained_and_not_shown(plugin: Plugin, printed: Any, part: str) -> None:
    if isinstance(printed, dict) and "kind" not in printed:
        plugin.prints(**printed)
    else:
        (plugin.folder / "answer").write_text(printed if isinstance(printed, str) else json.dumps(printed))
    with pytest.raises(HeadwayError) as raised:
        await plugin.credentials().current()
    assert part in str(raised.value)
    assert "exec of user u" in str(raised.value)
    assert SECRET not in str(raised.value)


async def test_plugin_that_is_missing_or_needs_a_terminal_is_explained(plugin: Plugin) -> None:
    with pytest.raises(Unavailable, match=r"cannot be started.*: brew install it"):
        await plugin.credentials(command=("/no/such/plugin",), hint="brew install it").current()
    with pytest.raises(Unavailable, match=r"cannot be started.*surrogates"):
        await plugin.credentials(command=(sys.executable, "\ud800")).current()
    with pytest.raises(Unavailable, match="needs a terminal"):
        await plugin.credentials(interactive="Always").current()
    assert plugin.runs == []
