"""`headway login`, `logout` and `whoami`, and other commands with a login: processes, a server and an issuer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from tests.cli.conftest import CORE, HEADWAY, ROOT, Started, address_of, announced
from tests.cli.test_serve_forward import run_command
from tests.helpers.browser import PATIENCE, open_chromium
from tests.helpers.oidc_provider import PASSWORD, USER, OidcProvider, http_client, serving_provider
from tests.helpers.secret_files import write_secret

ACCESS = """\
policies:
  - name: writers
    rules:
      - {verbs: ["*"], type: "*", partition: "*", namespace: "*"}
issuers:
  - name: corp
    issuer: %s
    audiences: [headway]
    jwks_file: keys.json
    leeway: 0
    bindings:
      - {claims: {groups: ops}, policies: [writers]}
"""
NO_SCREEN = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "BROWSER": ""}

Done = tuple[int, str, str]
pytestmark = pytest.mark.timeout(120)


class People:
    """A server, the issuer of its logins, and a person at a terminal.

    Attributes:
        printed: everything that commands have printed.
        pages: the address of the live page.
    """

    def __init__(self, provider: OidcProvider, server: str, pages: str, state: Path) -> None:
        self.provider, self.server, self.pages, self.state = provider, server, pages, state
        self.printed = ""

    def _options(self, server: str | None, **more: str) -> dict[str, Any]:
        paths = os.pathsep.join((str(ROOT), str(ROOT / "engine")))
        own = {"PYTHONPATH": paths, "HEADWAY_SERVER": server or self.server, "XDG_STATE_HOME": str(self.state)}
        return {"env": {**os.environ, **NO_SCREEN, **own, "PYTHONUNBUFFERED": "1", **more}, "cwd": self.state}

    async def run(self, *arguments: str, server: str | None = None) -> Done:
        """Run a command, and return its exit code and output."""
        done = await trio.run_process(
            [*HEADWAY, *arguments], capture_stdout=True, capture_stderr=True, check=False, **self._options(server)
        )
        out, errors = done.stdout.decode(), done.stderr.decode()
        self.printed += errors + ("" if arguments[:2] == ("token", "show") else out)
        return done.returncode, out, errors

    async def start(self, *arguments: str, **variables: str) -> trio.Process:
        """Start a command, with these variables of the environment."""
        process: trio.Process = await trio.lowlevel.open_process(
            [*HEADWAY, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **self._options(None, **variables)
        )
        return process

    async def begin_login(self, *options: str) -> tuple[trio.Process, str]:
        """Start a login, and return its process and the URL to open."""
        process = await self.start("login", self.provider.url, "--no-browser", *options)
        lines = await until(process, lambda text: text.count("\n") == 2, of="stderr")
        self.printed += lines
        return process, lines.splitlines()[1]

    async def log_in(self) -> None:
        """Log in, with a browser that is a program."""
        process, url = await self.begin_login()
        async with http_client() as browser:
            answer = await browser.post(url, data={"user": USER, "password": PASSWORD})
        assert "You are logged in" in answer.text
        await self.ended(process)

    async def ended(self, process: trio.Process) -> None:
        """Wait until a login has succeeded."""
        assert process.stdout is not None
        with trio.fail_after(60):
            out = b"".join([bytes(some) async for some in process.stdout]).decode()
            assert await process.wait() == 0
        self.printed += out
        assert out.startswith(f"logged in to {self.server} as ada until ")

    @property
    def kept(self) -> Path:
        """The file of the login."""
        return next(self.state.rglob("*.json"))

    def expire(self) -> None:
        """Let the login that is kept have expired."""
        self.kept.write_text(json.dumps({**json.loads(self.kept.read_text()), "expires_at": time.time()}))

    def files(self) -> list[str]:
        """Return the names of all files that are kept."""
        return [each.name for each in self.state.rglob("*") if each.is_file() and each.suffix != ".lock"]

    def assert_printed_no_secret(self) -> None:
        """Check the output of all commands."""
        assert self.provider.secrets
        assert not [each for each in self.provider.secrets if each in self.printed]
        assert PASSWORD not in self.printed


async def until(process: trio.Process, found: Callable[[str], bool], *, of: str = "stdout") -> str:
    """Return the output of a process as soon as it is what a test waits for."""
    stream, text = getattr(process, of), ""
    with trio.fail_after(60):
        while not found(text):
            some = await stream.receive_some()
            assert some, text
            text += some.decode()
    return text


@asynccontextmanager
async def ending(process: trio.Process) -> AsyncIterator[None]:
    """End a process at the end of the block, and close its output."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.kill()
        with trio.move_on_after(60, shield=True):
            await process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            await trio.aclose_forcefully(stream)


@pytest.fixture
async def people(start: Started, tmp_path: Path) -> AsyncIterator[People]:
    async with serving_provider() as provider:
        yield serving_people(provider, start, tmp_path)


def serving_people(provider: OidcProvider, start: Started, folder: Path) -> People:
    """Start a server that accepts the logins of an issuer."""
    write_secret(folder / "access.yaml", ACCESS % provider.url)
    (folder / "keys.json").write_text(provider.keys)
    (folder / "keys.json").chmod(0o644)
    (folder / "core.yaml").write_text(CORE)
    state = folder / "state"
    state.mkdir()
    options = ("--access", str(folder / "access.yaml"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    process = start("serve", "tests.cli.served:app", *options)
    server = address_of(process)
    pages = announced(process, "HTTP at ")
    return People(provider, server, pages, state)


async def test_login_is_used_by_every_command_and_forgotten_by_logout(people: People, tmp_path: Path) -> None:
    core = str(tmp_path / "core.yaml")
    assert (await people.run("get", "team", "core"))[0] == 1
    await people.log_in()

    assert await people.run("apply", "-f", core) == (0, "Team core created\n", "")
    assert (await people.run("get", "team", "core"))[0] == 0
    code, out, _ = await people.run("whoami", "-o", "json")
    found = json.loads(out)
    assert (code, found["subject"], found["groups"], found["issuer"]) == (0, "ada", ["ops"], people.provider.url)
    assert 3500 < found["expires_at"] - time.time() < 3601
    assert "staff.v1.Team" in found["types"]
    assert "subject  ada\n" in (await people.run("whoami"))[1]
    code, token, _ = await people.run("token", "show")
    write_secret(tmp_path / "token", token)

    assert await people.run("logout") == (0, f"revoked and forgotten: ada at {people.server}\n", "")
    assert people.provider.asked["/revoke"] == 1
    assert people.files() == []
    code, _, errors = await people.run("get", "team", "core")
    assert (code, "headway login" in errors) == (1, True)
    code, out, _ = await people.run("--token-file", str(tmp_path / "token"), "whoami")
    assert (code, "subject  ada\n" in out) == (0, True)
    assert await people.run("logout") == (0, "", f"no login for {people.server}\n")
    people.assert_printed_no_secret()


async def test_login_is_sent_to_its_server_alone(people: People) -> None:
    """Another address, even of the same server, has none."""
    await people.log_in()
    other = people.server.replace("127.0.0.1", "localhost")

    code, _, errors = await people.run("types", server=other)

    assert (code, "you have no token" in errors) == (1, True)


async def test_logout_of_an_issuer_forgets_its_logins_even_if_it_is_down(people: People) -> None:
    await people.log_in()
    people.provider.bodies["/revoke"] = 503, {}, b"<h1>down</h1>"

    assert await people.run("logout", "https://other.example.com") == (
        0,
        "",
        "no login of https://other.example.com\n",
    )
    code, out, errors = await people.run("logout", people.provider.url)

    assert (code, out) == (5, f"forgotten: ada at {people.server}\n")
    assert "has not revoked the login, which is forgotten here" in errors
    assert "<h1>" not in errors
    assert people.files() == []


async def test_folder_that_cannot_be_written_is_an_error_before_the_person_logs_in(people: People) -> None:
    (people.state / "headway").write_text("")

    code, _, errors = await people.run("login", people.provider.url, "--no-browser", "--patience", "1")

    assert (code, errors.startswith(f"Error: logins cannot be kept in {people.state}/headway/logins: ")) == (5, True)


async def test_device_flow_is_used_where_there_is_no_screen(people: People) -> None:
    process = await people.start("login", people.provider.url)
    async with ending(process):
        text = await until(process, lambda text: text.endswith("\n"), of="stderr")
        assert text == f"Open {people.provider.url}/activate in any browser, and enter the code WDJB-MJHT\n"
        people.provider.approve()
        await people.ended(process)
    assert (await people.run("whoami"))[0] == 0


BROWSER = """\
import os, pathlib, signal, sys, httpx
signal.alarm(100)
pathlib.Path(__file__).with_name("pid").write_text(str(os.getpid()))
for each in (1, 2):
    os.dup2(os.open(os.devnull, os.O_WRONLY), each)
with httpx.Client(trust_env=False, follow_redirects=True, timeout=60) as http:
    http.post(sys.argv[1], data={"user": %r, "password": %r})
signal.pause()
"""


async def test_login_opens_the_browser_and_does_not_wait_for_its_end(people: People, tmp_path: Path) -> None:
    """`BROWSER` names it. The URL is its argument, and the login ends while the window is still open."""
    (tmp_path / "browser.py").write_text(BROWSER % (USER, PASSWORD))
    process = await people.start("login", people.provider.url, BROWSER=f"{sys.executable} {tmp_path / 'browser.py'} %s")
    async with ending(process):
        await people.ended(process)
        text = await until(process, lambda text: text.count("\n") == 2, of="stderr")
        assert text.startswith("Log in in the browser. If none opens, open this URL on this machine:\nhttp://")
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert (await people.run("whoami"))[0] == 0


async def test_issuer_with_a_certificate_of_its_own_needs_its_authority(start: Started, tmp_path: Path) -> None:
    """Its absolute path is kept, because renewal and revocation need it too, wherever they run."""
    async with serving_provider(tmp_path / "ca.pem") as provider:
        people = serving_people(provider, start, tmp_path)
        (people.state / "ca.pem").symlink_to(tmp_path / "ca.pem")
        code, _, errors = await people.run("login", provider.url, "--no-browser")
        assert code != 0
        assert "its certificate is not trusted" in errors
        assert "--authority" in errors

        process, url = await people.begin_login("--authority", "ca.pem")
        async with ending(process), http_client(authority=tmp_path / "ca.pem") as browser:
            await browser.post(url, data={"user": USER, "password": PASSWORD})
            await people.ended(process)
        assert json.loads(people.kept.read_text())["authority"] == str(people.state / "ca.pem")
        people.expire()
        code, _, errors = await people.run("types")
        assert (code, errors, provider.asked["refresh_token"]) == (0, "", 1)
        assert (await people.run("logout"))[1].startswith("revoked and forgotten: ada")


@pytest.mark.wide
async def test_work_goes_on_when_its_token_is_renewed(people: People, tmp_path: Path) -> None:
    """A worker's streams resume, and it reconciles with the new token."""
    people.provider.life = 8
    await people.log_in()
    work = await people.start("work", "tests.cli.served:app", "--process", "web-1", "--lease-ttl", "5")
    async with ending(work):
        # The first token has expired by the second renewal.
        with trio.fail_after(60):
            await people.provider.wait_for("refresh_token", 2)
        assert work.poll() is None
        people.printed += await until(work, lambda text: "working for" in text)
        assert (await people.run("apply", "-f", str(tmp_path / "core.yaml")))[0] == 0
        code, out, _ = await people.run("wait", "team", "core", "--for", "teams/Staffed", "--within", "60")
        assert (code, out) == (0, "Team core: teams/Staffed\n")
        work.send_signal(signal.SIGINT)
        with trio.fail_after(60):
            assert await work.wait() == 0
    people.assert_printed_no_secret()


async def test_claims_are_shown_as_plain_text_and_as_a_date(people: People) -> None:
    """A group with an escape of a terminal, and a time that is later than any date."""
    people.provider.claims = {"groups": ["ops", "\x1b[31m"], "exp": 2**39}
    await people.log_in()

    code, out, _ = await people.run("whoami")

    assert (code, "\x1b" in out) == (0, False)
    assert "groups   ops, \\x1b[31m\n" in out
    assert "until    9999-" in out or "until    9998-" in out


async def test_interrupted_login_leaves_nothing(people: People) -> None:
    process, url = await people.begin_login()
    async with ending(process):
        process.send_signal(signal.SIGINT)
        with trio.fail_after(60):
            assert await process.wait() == 130

    assert people.files() == []
    callback = httpx.URL(url).params["redirect_uri"]
    async with http_client() as browser:
        with pytest.raises(httpx.ConnectError):
            await browser.get(callback)


async def test_nothing_secret_is_in_the_list_of_processes(people: People) -> None:
    """The URL has the challenge, and not the verifier. The command's own arguments have neither."""
    process, url = await people.begin_login()
    async with ending(process):
        arguments = await trio.Path(f"/proc/{process.pid}/cmdline").read_text()
        assert httpx.URL(url).params["state"] not in arguments
        assert "verifier" not in url


@pytest.mark.wide
@pytest.mark.parametrize("types", ["team,account"])
async def test_watch_goes_on_when_its_token_is_renewed(people: People, types: str, tmp_path: Path) -> None:
    """The server ends the stream of an expired token. The watch resumes with the new one."""
    people.provider.life = 8
    await people.log_in()
    watch = await people.start("watch", types)
    async with ending(watch):
        # The first token has expired by the second renewal.
        with trio.fail_after(60):
            await people.provider.wait_for("refresh_token", 2)
        assert watch.poll() is None
        assert (await people.run("apply", "-f", str(tmp_path / "core.yaml")))[0] == 0
        people.printed += await until(watch, lambda text: "core" in text)
        watch.send_signal(signal.SIGINT)
        with trio.fail_after(60):
            assert await watch.wait() == 130
    people.assert_printed_no_secret()


async def test_commands_that_renew_at_the_same_time_stay_logged_in(people: People) -> None:
    """A refresh token that is used twice would end the login."""
    await people.log_in()
    people.expire()
    codes: list[int] = []

    async def ask() -> None:
        codes.append((await people.run("types"))[0])

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)

    assert codes == [0, 0, 0]
    assert (people.provider.asked["refresh_token"], people.provider.refused) == (1, 0)


async def test_login_that_others_can_read_is_refused_until_logout(people: People) -> None:
    await people.log_in()
    people.kept.chmod(0o644)

    code, _, errors = await people.run("types")
    assert (code, "chmod 600" in errors) == (2, True)
    assert (await people.run("logout"))[0] == 0
    assert people.files() == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("http://login.example.com",), "http:// is allowed for loopback only"),
        (("https://127.0.0.1:1",), "https://127.0.0.1:1/.well-known/openid-configuration: "),
        (("https://login.example.com", "--device", "--no-browser"), "exclude each other"),
    ],
)
def test_login_that_cannot_begin_says_why(arguments: tuple[str, ...], why: str, tmp_path: Path) -> None:
    code, _, errors = run_command("login", *arguments, env={"XDG_STATE_HOME": str(tmp_path)})

    assert code != 0
    assert why in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.browser
@pytest.mark.timeout(6 * PATIENCE)
async def test_person_types_the_password_in_a_browser(people: People, tmp_path: Path) -> None:
    """The login is good for a command, and its token for the live page."""
    process, url = await people.begin_login()
    async with ending(process), open_chromium() as browser:
        await browser.open(url)
        for name, text in (("user", USER), ("password", PASSWORD)):
            await browser.click(f"#{name}")
            await browser.type(text)
        await browser.press("Enter")
        await browser.shows("You are logged in")
        await people.ended(process)
        assert (await people.run("apply", "-f", str(tmp_path / "core.yaml")))[0] == 0
        assert (await people.run("get", "team", "core"))[0] == 0

        token = (await people.run("token", "show"))[1].strip()
        await browser.goto(people.pages)
        await browser.wait("document.getElementById('token') !== null")
        await browser.click("#token")
        await browser.type(token)
        await browser.press("Enter")
        await browser.wait("document.querySelectorAll('.controllers tbody tr').length >= 1")
    people.assert_printed_no_secret()
