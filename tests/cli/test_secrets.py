"""No output shows the value of a secret field, except the one that is asked to."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog
import trio

import headway as headway_package
from headway import events, field
from headway.cli._main import _COMMANDS
from headway.observe import Metrics, log_report
from headway.protobuf import REDACTED
from headway.resource import Resource
from headway.testing import simulation
from headway.why import sentences
from tests.cli.terminal import Terminal
from tests.helpers.why_programs import PATIENCE, eventually

CANARY = "canary-e7d1f0"
FORMS = (CANARY, base64.b64encode(CANARY.encode()).decode().rstrip("="))
QUOTED = base64.b64encode(CANARY.encode()).decode()


@headway_package.message(name="vault.Login")
class Login:
    user: str = field(1)
    password: str = field(2, secret=True)


@headway_package.message(name="vault.Vault")
class Vault:
    owner: str = field(1)
    token: str = field(2, secret=True)
    key: bytes = field(3, secret=True)
    old: list[str] = field(4, secret=True)
    env: dict[str, str] = field(5, secret=True)
    login: Login = field(6)
    logins: list[Login] = field(7)
    pin: str | None = field(8, secret=True)


@headway_package.message(name="vault.Door")
class Door:
    code: str = field(1, secret=True)


MANIFEST = f"""\
type: vault.v1.Vault
name: core
data:
  owner: ada
  token: {CANARY}
  key: {QUOTED}
  old: [{CANARY}]
  env: {{TOKEN: {CANARY}}}
  login: {{user: ada, password: {CANARY}}}
  logins: [{{user: bob, password: {CANARY}}}]
  pin: {CANARY}
"""
DOOR = f"type: vault.v1.Door\nname: front\ndata: {{code: {CANARY}}}\n"


def program() -> headway_package.App:
    """Return an app whose every function quotes the secrets that it is given, in every way there is."""
    app = headway_package.App("vault")

    def check(vault: Resource[Vault]) -> None:
        if vault.data.owner == "nobody":
            raise ValueError(f"{vault.data.token} belongs to nobody, and neither does {vault.data!r}")

    hooks = headway_package.Hooks(validate=check)
    columns = {"TOKEN": "token", "OLD": "old", "PASSWORD": "login.password"}
    vault = app.type("vault", "v1", "Vault", Vault, hooks=hooks, columns=columns)
    door = app.type("vault", "v1", "Door", Door)

    def code(each: Resource[Door]) -> str:
        raise ValueError(f"the code {each.data.code} is no index")

    index = headway_package.indexes.by(door, "code", code)

    def opens(each: Resource[Door], _: headway_package.cache.CacheReader) -> list[headway_package.ResourceId]:
        raise ValueError(f"{each.data.code} opens nothing")

    @app.controller(
        manages=vault,
        watches=[headway_package.watch(door, opens)],
        indexes=[index],
        backoff=headway_package.Backoff(base=0.01, maximum=30),
    )
    async def vaults(rt: headway_package.Runtime, request: headway_package.Request[Vault]) -> None:
        found = rt.resource(request)
        if found is None:
            return
        rt.event(found, "Opened", f"with {found.data.token}, {found.data.key!r} and {found.data.login.password}")
        async with rt.conditions(found, failure="Open"):
            error = RuntimeError(f"{found.data.pin} of {found.data} is wrong", found.data.env["TOKEN"])
            error.add_note(f"tried {found.data.old[0]}")
            raise error from KeyError(found.data.logins[0].password)

    @app.daemon(vault, backoff=headway_package.Backoff(base=0.01, maximum=30))
    async def guard(_: headway_package.Runtime, given: Resource[Vault]) -> None:
        raise RuntimeError(f"{given.data.pin} opens {given.data}") from KeyError(given.data.token)

    async def knock(rt: headway_package.Runtime, _: object) -> None:
        with trio.fail_after(PATIENCE):
            while (found := rt.cache.get(door, "front")) is None:  # noqa: ASYNC110  # a read has no event
                await trio.sleep(0.01)
        raise RuntimeError(f"nobody opens with {found.data.code}, as in {found}")

    doors, knocks = trio.open_memory_channel[Resource[Door]](1)
    doors.send_nowait(door.new("back", Door(code=CANARY)))

    def no_id(each: Resource[Door]) -> headway_package.ResourceId:
        raise ValueError(f"{each.data.code} is no id")

    sources = {"knock": knock, "channel": headway_package.sources.from_channel(knocks, no_id)}

    @app.controller(manages=door, sources=sources)
    async def watchman(_: headway_package.Runtime, __: headway_package.Request[Door]) -> None: ...

    return app


OF_TASKS = {events.DaemonEnded, events.RunEnded, events.SourceFailed}
"""The events with the errors of daemons and sources."""


class Told:
    """Everything that a process of the program writes: its log, its events, its journal and its metrics."""

    def __init__(self, folder: Path) -> None:
        self.lines: list[str] = []
        self.events: list[object] = []
        self.metrics = Metrics()
        self.journal = folder / "journal.jsonl"

    def report(self) -> Callable[[object], None]:
        """Return the report to open the engine with."""

        def keep(_: object, __: str, fields: object) -> str:
            self.lines.append(repr(fields))
            raise structlog.DropEvent

        def note(event: object) -> None:
            self.events.append(event)
            log(event)
            self.metrics(event)

        log = log_report(structlog.wrap_logger(None, processors=[keep]), verbose=True)
        return note


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


@asynccontextmanager
async def engine_of(told: Told) -> AsyncIterator[headway_package.engine.Engine]:
    opened = headway_package.open_engine(
        "memory:",
        program(),
        network=headway_package.Network(["127.0.0.1:0"], insecure=True),
        report=told.report(),
        journal=told.journal,
    )
    async with opened as engine:
        told.metrics.watch(engine.status)
        yield engine


def assert_clean(what: str, text: str) -> None:
    for each in FORMS:
        assert each not in text, f"{what} shows the secret: {text}"


# What each command is called with here. `FOLLOWED` goes on until it is ended.
SHOWN: dict[str, tuple[tuple[str, ...], ...]] = {
    "apply": (("apply", "-f", "-"), *(("apply", "-f", "-", "-o", form) for form in ("yaml", "json"))),
    "describe": (("describe", "vault", "core"), ("describe", "door", "front")),
    "diff": (("diff", "-f", "-"),),
    # It refuses to write a secret into a file unasked.
    "edit": (("edit", "vault", "core"),),
    "events": (("events",), ("events", "vault", "core"), ("events", "-o", "json")),
    "get": tuple(("get", "vault", "core", "-o", form) for form in ("table", "yaml", "json")),
    "list": tuple(("list", "vault", "-o", form) for form in ("table", "yaml", "json")),
    "retry": (("retry", "vault", "core"),),
    "schema": (("schema", "show", "vault"),),
    "status": tuple(("status", "vault", "core", "-o", form) for form in ("table", "yaml", "json")),
    "types": (("types",), ("types", "vault")),
    "wait": (("wait", "vault", "core", "--for", "Open=FALSE", "--within", "20"),),
    "why": (
        *(("why", "vault", "core", "-o", form) for form in ("text", "json")),
        *(("why", "door", "front", "-o", form) for form in ("text", "json")),
        ("why", "--stuck", "--longer-than", "0"),
        ("why", "--stuck", "--longer-than", "0", "-o", "json"),
    ),
    "delete": (("delete", "door", "front"),),
}
FOLLOWED = {"watch": tuple(("watch", "vault", "-o", form) for form in ("table", "yaml", "json"))}
# These print neither a resource nor a text that a program could have written.
WITHOUT = {
    "completion",
    "graph",
    "kubernetes",
    "leases",
    "login",
    "logout",
    "new",
    "pause",
    "resume",
    "peer",
    "quota",
    "run",
    "serve",
    "work",
    "token",
    "top",
    "whoami",
}
# A backup and a copy are the store itself, with everything in it.
STORES = {"backup", "restore", "store"}


def test_each_command_is_tried_or_shows_no_resource() -> None:
    """A new command has to be put into one of the tables."""
    assert SHOWN.keys() | FOLLOWED.keys() | WITHOUT | STORES == _COMMANDS.keys()


async def test_no_output_shows_a_secret(terminal: Terminal, told: Told) -> None:
    """Of the commands, and of everything that the engine writes while every function quotes its secrets."""
    async with engine_of(told) as engine:
        server = engine.addresses[0]

        async def ran(*arguments: str, stdin: str = MANIFEST) -> str:
            done = await terminal(*arguments, stdin=stdin, server=server)
            text = done.stdout + done.stderr
            assert_clean(" ".join(arguments), text)
            return text

        stored = await terminal("apply", "-f", "-", stdin=MANIFEST + "---\n" + DOOR, server=server)
        assert stored.returncode == 0

        vault = next(iter(engine.controllers["vaults"].run.definition.types)).id("core")  # type: ignore[union-attr]

        async def diagnosed() -> bool | None:
            why = await engine.why(vault)
            found = why.controllers[0]
            kinds = {type(each) for each in told.events if not isinstance(each, events.RunEnded) or each.error}
            return bool(why.events and found.reconciles and found.unmapped and kinds >= OF_TASKS) or None

        await eventually(diagnosed)
        for calls in SHOWN.values():
            for arguments in calls:
                text = await ran(*arguments)
                # Nothing differs, so `diff` has nothing to say.
                assert text.strip() or arguments[0] == "diff"
        for arguments in FOLLOWED["watch"]:
            following = terminal.start(*arguments, server=server)
            await following.out.line()
            following.scope.cancel()
            await following.wait()
            assert_clean(" ".join(arguments), following.stdout + following.stderr)
        assert REDACTED in await ran("get", "vault", "core")
        other = MANIFEST.replace(CANARY, "another-value", 1)
        assert "(redacted, changed)" in await ran("diff", "-f", "-", stdin=other)
        for output in ("yaml", "json"):
            await ran("apply", "--dry-run", "-f", "-", "-o", output, stdin=other)
        # Refusals quote what is wrong: by the hook, and by the reader of the manifest.
        nobody = MANIFEST.replace("owner: ada", "owner: nobody")
        assert "belongs to nobody" in await ran("apply", "-f", "-", stdin=nobody)
        for wrong in ("old: {}", "env: {}", "token: {{a: {}}}", "key: '{}!'", "pin: [{}]"):
            wrong = wrong.format(CANARY)
            text = await ran("apply", "-f", "-", stdin=f"type: vault.v1.Vault\nname: x\ndata:\n  {wrong}\n")
            assert "secret" in text
        shown = await terminal("get", "vault", "core", "--show-secrets", "-o", "json", server=server)
        assert json.loads(shown.stdout)["data"]["token"] == CANARY
        for status in engine.status():
            assert_clean("status", repr(status))
        assert_clean("metrics", told.metrics.text().decode())
        for sentence in sentences(await engine.why(vault)):
            assert_clean("why", sentence)
    kinds = {type(each) for each in told.events}
    assert {events.Reconciled, events.MappingFailed, events.IndexFailed} <= kinds
    for each in told.events:
        assert_clean("an event", repr(each))
    assert len(told.lines) > 10
    for line in told.lines:
        assert_clean("the log", line)
    journal = told.journal.read_text()
    assert "of Vault(" in journal
    assert_clean("the journal", journal)


async def test_shown_resource_cannot_be_written_back(terminal: Terminal, told: Told) -> None:
    """That would replace the secrets by what stands in their place."""
    async with engine_of(told) as engine:
        server = engine.addresses[0]
        await terminal("apply", "-f", "-", stdin=MANIFEST, server=server)
        shown = (await terminal("get", "vault", "core", "-o", "yaml", server=server)).stdout
        refused = await terminal("apply", "-f", "-", stdin=shown, server=server)
        assert refused.returncode == 1
        assert "data.token is '(redacted)', which stands in place of a secret" in refused.stderr
        for command in ("list", "watch"):
            # They have no option that shows secrets, and their help says so.
            said = " ".join((await terminal(command, "--help")).stdout.split())
            assert "Both can be applied if the type has no secret fields" in said
        listed = (await terminal("list", "vault", "-o", "yaml", server=server)).stdout
        assert (await terminal("apply", "-f", "-", stdin=listed, server=server)).returncode == 1
        whole = (await terminal("get", "vault", "core", "--show-secrets", "-o", "yaml", server=server)).stdout
        done = await terminal("apply", "-f", "-", stdin=whole, server=server)
        assert "unchanged" in done.stdout


def test_stories_of_a_simulation_show_no_secret() -> None:
    """And yet two runs that end with different secrets differ."""
    vaults: list[headway_package.ResourceType[Vault]] = []

    def make(process: simulation.Process) -> headway_package.App:
        app = headway_package.App("vault")
        vault = app.type("vault", "v1", "Vault", Vault)
        vaults.append(vault)

        @app.controller(manages=vault)
        async def keep(rt: headway_package.Runtime, request: headway_package.Request[Vault]) -> None:
            found = rt.resource(request)
            if found is not None and not found.data.pin:
                # Which secret it is depends on how often the process was started: a bug.
                found.data.pin = f"{CANARY}-{process.lives}"
                await rt.client.write(found)

        return app

    async def scenario(world: simulation.World) -> None:
        await world.client.apply(world.type("Vault").new("core", Vault(owner="ada", token=CANARY)))
        await world.wait_idle()

    with pytest.raises(simulation.Refuted) as caught:
        simulation.explore(make, scenario)
    assert_clean("the refutation", str(caught.value))
    assert "(redacted #" in str(caught.value)
