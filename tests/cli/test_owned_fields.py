"""`headway apply` and `headway diff` of types with owned fields: they apply the fields that a manifest lists."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from headway.engine import Engine, Network, open_engine
from headway.events import ignore
from headway.manifest import documents
from tests.cli.conftest import CORE
from tests.cli.owning import SERVICE, Service, Spec, app
from tests.cli.served import app as served
from tests.cli.terminal import Terminal

WEB = """\
type: Service
name: web
metadata: {tier: gold}
data:
  title: Web
  spec: {image: "web:1"}
  labels: {team: red}
"""
OWNED = {
    "title": ("cli",),
    "spec.image": ("cli",),
    "labels.team": ("cli",),
    "metadata:tier": ("cli",),
}


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with open_engine("memory:", app, network=Network(["127.0.0.1:0"], insecure=True), report=ignore) as engine:
        yield engine


@pytest.fixture
async def headway(terminal: Terminal, engine: Engine) -> Terminal:
    return Terminal(engine.addresses[0], terminal.nursery)


async def test_apply_leaves_the_fields_of_others_alone(headway: Terminal, engine: Engine) -> None:
    """What a manifest no longer lists is removed, and nothing else."""
    given = SERVICE.new("web", Service(spec=Spec(replicas=3), labels={"x": "y"}, hosts=["a"]))
    await engine.client.apply(given, fields=["spec.replicas", "labels.x", "hosts"], manager="scaler")
    shown = await headway("apply", "--dry-run", "-f", "-", stdin=WEB)
    assert (shown.returncode, shown.stdout) == (7, "Service web would be changed\n")
    done = await headway("apply", "-f", "-", stdin=WEB)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Service web changed\n", "")
    found = await engine.client.read(SERVICE, "web")
    assert found.data == Service(
        title="web", spec=Spec(image="web:1", replicas=3), labels={"team": "red", "x": "y"}, hosts=["a"]
    )
    assert {path: owners for path, owners in found.field_owners.items() if owners != ("scaler",)} == OWNED

    for command in (["diff"], ["apply", "--dry-run"], ["apply"]):
        done = await headway(*command, "-f", "-", stdin=WEB)
        assert (done.returncode, done.stdout, done.stderr) in [(0, "", ""), (0, "Service web unchanged\n", "")]
    assert (await engine.client.read(SERVICE, "web")).version == found.version

    less = "type: Service\nname: web\ndata: {spec: {image: 'web:2'}}\n"
    lines = (await headway("diff", "-f", "-", stdin=less)).stdout.splitlines()
    changes = [line for line in lines[2:] if line[0] in "+-"]
    assert [line for line in changes if "fieldOwners" not in line] == [
        "-  tier: gold",
        "-  title: web",
        "-    image: web:1",
        "+    image: web:2",
        "-    team: red",
    ]
    assert '+  fieldOwners: \'{"v1":{"cli":["spec.image"],"scaler":["hosts","labels.x","spec.replicas"]}}\'' in changes
    assert (await headway("apply", "-f", "-", stdin=less)).stdout == "Service web changed\n"
    found = await engine.client.read(SERVICE, "web")
    assert found.data == Service(spec=Spec(image="web:2", replicas=3), labels={"x": "y"}, hosts=["a"])


async def test_conflict_names_manager_and_field_until_it_is_forced(headway: Terminal, engine: Engine) -> None:
    await engine.client.apply(SERVICE.new("web", Service(title="site")), fields=["title"], manager="scaler")
    said = "Error: Service web: title belongs to scaler: leave it out, apply the same value, or take it over with"
    for command in (["diff"], ["apply", "--dry-run"], ["apply"]):
        done = await headway(*command, "-f", "-", stdin=WEB)
        assert (done.returncode, done.stderr) == (1, f"{said} --force\n")
    assert (await headway("diff", "--force", "-f", "-", stdin=WEB)).returncode == 7
    assert (await headway("apply", "--force", "-f", "-", stdin=WEB)).stdout == "Service web changed\n"
    assert (await engine.client.read(SERVICE, "web")).field_owners == OWNED
    ada = await headway("apply", "--field-manager", "ada", "-f", "-", stdin=WEB)
    assert ada.stdout == "Service web changed\n"
    assert (await engine.client.read(SERVICE, "web")).field_owners["title"] == ("ada", "cli")


async def test_default_that_is_listed_is_applied_and_owned(headway: Terminal, engine: Engine) -> None:
    for count in (3, 0):
        text = f"type: Service\nname: web\ndata: {{spec: {{replicas: {count}}}}}\n"
        assert (await headway("apply", "-f", "-", stdin=text)).returncode == 0
        found = await engine.client.read(SERVICE, "web")
        assert found.data.spec.replicas == count
        assert found.field_owners == {"spec.replicas": ("cli",)}


async def test_created_resource_has_the_owners_and_what_is_shown_can_be_applied(
    headway: Terminal, engine: Engine
) -> None:
    """The entry of the owners in it is passed over."""
    assert (await headway("apply", "--dry-run", "-f", "-", stdin=WEB)).stdout == "Service web would be created\n"
    assert (await headway("apply", "--create-only", "-f", "-", stdin=WEB)).stdout == "Service web created\n"
    assert (await headway("apply", "--create-only", "-f", "-", stdin=WEB)).returncode == 1
    assert (await engine.client.read(SERVICE, "web")).field_owners == OWNED
    for form in ("yaml", "json"):
        shown = (await headway("get", "service", "web", "-o", form)).stdout
        assert "fieldOwners" in shown
        assert (await headway("apply", "-f", "-", stdin=shown)).stdout == "Service web unchanged\n"
    other = await headway("apply", "-f", "-", stdin="type: Service\nname: other\n")
    assert other.stdout == "Service other created\n"
    assert (await engine.client.read(SERVICE, "other")).metadata == {}


async def test_options_without_a_meaning_are_refused(terminal: Terminal, server: str) -> None:
    headway = Terminal(server, terminal.nursery)
    for option in (["--force"], ["--field-manager", "ada"]):
        for command in ("apply", "diff"):
            done = await headway(command, *option, "-f", "-", stdin=CORE)
            assert done.returncode == 2
            assert f"{option[0]}: no type of these manifests has owned fields" in done.stderr


@pytest.mark.parametrize(
    ("text", "format"),
    [
        (
            "type: Service\nname: web\nmetadata: {tier: gold, finalizers: x, fieldOwners: y}\ndata: {title: '', "
            "spec: {image: a, replicas: 0}, labels: {b.c: d}, hosts: [], ports: {5: true}, canary: {}}",
            "YAML",
        ),
        (
            '{"type": "Service", "name": "web", "metadata": {"tier": "gold"}, "data": {"title": "", "spec": {"image": '
            '"a", "replicas": 0}, "labels": {"b.c": "d"}, "hosts": [], "ports": {"5": true}, "canary": {}}}',
            "JSON",
        ),
        (
            'Type = "Service"\nName = "web"\nMetadata = { tier = "gold" }\nData = { Title = "", Spec = { Image = "a", '
            'Replicas = 0 }, Labels = { "b.c" = "d" }, Hosts = [], Ports = { "5" = true }, Canary = {} }',
            "HCL",
        ),
    ],
)
def test_listed_fields_are_those_of_the_document(text: str, format: str) -> None:
    [document] = documents(text, app.registry, format=format)  # type: ignore[arg-type]  # one of the formats
    listed = {"title", "spec.image", "spec.replicas", "labels.b.c", "hosts", "ports.5", "canary", "metadata:tier"}
    assert set(document.fields) == listed


def test_unset_and_empty_fields_are_not_listed() -> None:
    text = "type: Service\nname: web\ndata: {spec: {}, labels: {}, canary: null}\n"
    [document] = documents(text, app.registry)
    assert document.fields == []
    [document] = documents(CORE, served.registry)
    assert document.fields == []
