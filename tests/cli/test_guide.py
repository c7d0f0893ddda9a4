"""The commands of the guides, run in their order against a program as the guides describe it, print what they show."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import headway
import headway.observe
from headway import events, field
from headway.cli import main
from tests.cli.terminal import Terminal
from tests.helpers.why_programs import eventually

GUIDES = Path(__file__).parents[2] / "docs/guides"


@headway.message(name="staff.v1.Team")
class Team:
    members: list[str] = field(1)


@headway.message(name="staff.v1.Account")
class Account:
    login: str = field(1)


app = headway.App("staff")
TEAM = app.type("staff", "v1", "Team", Team)
ACCOUNT = app.type("staff", "v1", "Account", Account)


@app.controller(manages=TEAM, watches=[headway.watch(ACCOUNT, headway.mappers.owner())])
async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:
    """Give each member an account, and each team the condition `Staffed`."""
    team = rt.resource(request)
    if team is not None:
        async with rt.conditions(team) as conditions, rt.outputs(ACCOUNT, owner=team) as wanted:
            for login in team.data.members:
                await wanted.apply(login, Account(login=login))
            conditions.set("Staffed", bool(team.data.members))


def block(guide: str, command: str) -> list[tuple[str, str]]:
    """Return the commands of the block of a guide that has this command, with the output that the guide shows."""
    for found in re.findall(r"^```console\n(.*?)^```", (GUIDES / guide).read_text(), re.MULTILINE | re.DOTALL):
        if f"$ {command}\n" in found:
            return re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", found, re.MULTILINE)
    raise AssertionError(f"{guide} has no block with {command}")


def steady(output: str) -> list[str]:
    """Return the lines of an output without its numbers and ages, which differ from run to run."""
    output = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "DATE TIME", output)
    return [re.sub(r" +\d+s?\b", " N", line).rstrip() for line in output.splitlines()]


def commands(page: Path) -> list[str]:
    """Return the commands of Headway in the blocks of a page."""
    blocks = re.findall(r"^```(?:console|sh|text|ini)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ")
    return re.findall(
        r"(?:^(?:\$ )?|; |&& |/bin/)headway ((?:--|[a-z])(?:'[^'\n]*'|[^\n|>&)#'])*)", lines, re.MULTILINE
    )


@pytest.mark.parametrize("page", sorted(GUIDES.glob("*.md")), ids=lambda page: page.stem)
def test_commands_of_a_guide_have_only_options_that_exist(page: Path) -> None:
    for given in commands(page):
        command: click.Command = main
        context = click.Context(main, info_name="headway")
        arguments = shlex.split(given)
        while isinstance(command, click.Group) and arguments:
            _, arguments, _ = command.make_parser(context).parse_args(arguments)
            if not arguments:
                break
            name, *arguments = arguments
            found = command.get_command(context, name)
            assert found is not None, f"{given}: no command {name}"
            command = found
            context = click.Context(command, info_name=name, parent=context)
        if not isinstance(command, click.Group):
            command.make_parser(context).parse_args(arguments)


def test_alerts_of_the_guide_are_about_metrics_that_exist() -> None:
    alerts = set(re.findall(r"headway_\w+", (GUIDES / "production.md").read_text()))
    assert len(alerts) > 5
    assert alerts <= set(re.findall(r"headway_\w+", (GUIDES / "observing.md").read_text()))


@pytest.mark.parametrize("page", sorted(GUIDES.glob("*.md")), ids=lambda page: page.stem)
def test_yaml_of_a_guide_is_yaml(page: Path) -> None:
    """Whoever copies it into a file has a file that loads, such as the rules of the alerts."""
    for found in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        list(yaml.safe_load_all(found))


async def test_alert_on_an_increase_notices_the_first_event_of_its_counter() -> None:
    """To Prometheus, a counter that appears at 1 has not increased. So it begins at 0, or the alert looks for it."""
    [text] = re.findall(r"^```yaml\n(groups:.*?)^```", (GUIDES / "production.md").read_text(), re.MULTILINE | re.DOTALL)
    [group] = yaml.safe_load(text)["groups"]
    metrics = headway.observe.Metrics()
    async with headway.open_engine("memory:", app, report=metrics) as engine:
        metrics.watch(engine.status)
        await engine.wait_idle()
        page = metrics.text().decode()
    counters = {each["alert"]: re.findall(r"increase\((\w+)", each["expr"]) for each in group["rules"]}
    assert sum(map(len, counters.values())) > 3
    for rule in group["rules"]:
        for name in counters[rule["alert"]]:
            # A reading that fails is repeated within a minute, so its counter goes on to 2.
            noticed = f"{name} unless {name} offset" in rule["expr"] or name == "headway_issuer_reads_total"
            assert noticed or re.search(rf"^{name}\{{.* 0\.0$", page, re.MULTILINE), rule


def write(file: str, text: str) -> None:
    Path(file).write_text(text)


def replace(file: str, old: str, new: str) -> None:
    write(file, Path(file).read_text().replace(old, new))


async def check(guide: str, command: str, terminal: Terminal, engine: headway.Engine) -> None:
    """Run the commands of a block, and compare what they print with the guide."""
    for line, shown in block(guide, command):
        program, *arguments = shlex.split(line.partition(" && ")[0])
        if program == "cat":
            write(arguments[0], shown)
        elif program == "sed":
            _, old, new, _ = arguments[1].split("/")
            replace(arguments[2], old, new)
        elif arguments[0] == "watch":
            watching = terminal.start(*arguments, server=engine.addresses[0])
            for expected in steady(shown.replace("^C\n", "")):
                if " stored " in expected:
                    await engine.client.apply(ACCOUNT.new("grace", Account(login="grace")))
                assert steady(await watching.out.line()) == [expected]
            watching.scope.cancel()
        else:
            said = ""
            for each in line.split(" && "):
                done = await terminal(*shlex.split(each)[1:], server=engine.addresses[0])
                said += done.stdout + done.stderr
                await engine.wait_idle()
            assert steady(said) == steady(shown), line


def opened(program: headway.App) -> Any:
    return headway.open_engine(
        "memory:", program, network=headway.Network(["127.0.0.1:0"], insecure=True), report=events.ignore
    )


@pytest.mark.wide
async def test_session_at_the_beginning_of_the_command_line_guide(terminal: Terminal) -> None:
    async with opened(app) as engine:
        await check("command-line.md", "headway types", terminal, engine)


@pytest.mark.parametrize(
    ("guide", "command", "stored"),
    [
        ("command-line.md", "headway status team core", []),
        ("command-line.md", "headway apply -f teams.yaml --wait Staffed --within 60", ["docs"]),
        ("subscribing.md", "headway watch team,account", ["core"]),
    ],
)
async def test_block_of_a_guide_shows_the_real_output(
    guide: str, command: str, stored: list[str], terminal: Terminal
) -> None:
    given = {"core": "ada", "docs": "joan"}
    manifests = [f"type: staff.v1.Team\nname: {name}\ndata:\n  members: [{login}]\n" for name, login in given.items()]
    write("core.yaml", manifests[0])
    write("teams.yaml", "---\n".join(manifests))
    async with opened(app) as engine:
        for name in stored:
            await engine.client.apply(TEAM.new(name, Team(members=[given[name]])))
        await engine.wait_idle()
        await check(guide, command, terminal, engine)


async def test_events_guide_shows_the_events_of_its_program(terminal: Terminal) -> None:
    page = (GUIDES / "observing.md").read_text()
    program = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0]
    names: dict[str, Any] = {"__name__": __name__}
    exec(program.partition("async def main")[0], names)
    async with opened(names["app"]) as engine:
        for members in (["ada", "bob"], ["ada", "bob", "eve"]):
            await engine.client.apply(names["TEAM"].new("core", names["Team"](members=members)))
            await engine.wait_idle()
        [(command, shown), *_] = block("observing.md", "headway events team core")

        async def printed() -> list[str] | None:
            done = await terminal(*shlex.split(command)[1:], server=engine.addresses[0])
            # An event is stored after the reconcile that records it.
            return steady(done.stdout) if "TooLarge" in done.stdout else None

        assert await eventually(printed) == steady(shown)
