"""The documents of a manifest and the resources that they describe."""

import datetime
import pickle
import subprocess
import sys

import pytest

from headway.errors import CallerError
from headway.manifest import ManifestError, Problem, load
from headway.resource import ResourceId
from tests.manifest.messages import APP, NODE, REGISTRY, App, Limits, Policy

WEB = """\
type: fleet.v1.App
name: web
namespace: prod
metadata: {team: core}
owner: {type: fleet.v1.Node, name: one}
data:
  command: [python3, web.py]
  replicas: 3
  environment: {GREETING: hello}
"""


def test_document_loads_as_the_resource_that_it_describes() -> None:
    """Every part of the document has its place in the resource."""
    app = App(command=["python3", "web.py"], replicas=3, environment={"GREETING": "hello"})
    expected = APP.new("web", app, namespace="prod", owner=NODE.id("one"), metadata={"team": "core"})
    assert load(WEB, REGISTRY) == [expected]


@pytest.mark.parametrize("type", ["fleet.v1.App", "App", "{group: fleet, version: v1, kind: App}", "'App'"])
def test_type_may_be_a_full_name_parts_or_a_unique_kind(type: str) -> None:
    """All forms mean the same type."""
    assert load(f"type: {type}\nname: web", REGISTRY) == [APP.new("web")]


def test_documents_load_in_order_and_empty_ones_are_skipped() -> None:
    """An empty document, a comment and a null describe no resource."""
    text = "---\n---\n# nothing\n---\ntype: App\nname: b\n---\nnull\n---\n{type: Node, name: a}\n---\n"
    assert load(text, REGISTRY) == [APP.new("b"), NODE.new("a")]
    assert load("", REGISTRY) == []


def test_yaml_reads_every_kind_of_value() -> None:
    """Enums by name or number, base64, timestamps of any time zone, durations, and map keys other than text."""
    text = """
type: App
name: web
data:
  policy: NEVER
  limits: {cpu: 1e3, memory: 0x10}
  paused: yes
  icon: |
    aGVs
    bG8=
  since: 2024-02-29T14:30:00.25+02:00
  gracePeriod: -1.5s
  note: null
  ports: {80: {}, 443: {cpu: 1}}
"""
    [resource] = load(text, REGISTRY)
    assert resource.data == App(
        policy=Policy.NEVER,
        limits=Limits(cpu=1000.0, memory=16),
        paused=True,
        icon=b"hello",
        since=datetime.datetime(2024, 2, 29, 12, 30, 0, 250_000, datetime.UTC),
        grace_period=datetime.timedelta(seconds=-1.5),
        ports={80: Limits(), 443: Limits(cpu=1.0)},
    )
    assert load("{type: App, name: a, data: {policy: 1}}", REGISTRY)[0].data == App(policy=Policy.NEVER)


def test_yaml_anchors_and_aliases_work_within_a_document() -> None:
    text = "{type: App, name: a, data: {command: [&x hello, *x], environment: &e {A: b}, limits: {}}}"
    assert load(text, REGISTRY)[0].data == App(command=["hello", "hello"], environment={"A": "b"})


def test_owner_inherits_the_units_of_its_resource() -> None:
    """Explicit units of an owner win. A scope without units inherits none."""
    text = "{type: App, name: a, partition: east, namespace: prod, owner: {type: %s, name: b}}"
    assert load(text % "App", REGISTRY)[0].owner == ResourceId(APP.name, "b", "east", "prod")
    assert load(text % "Node", REGISTRY)[0].owner == ResourceId(NODE.name, "b")


def test_only_the_same_id_twice_is_refused() -> None:
    """The same name in another namespace or kind is valid."""
    text = "{type: App, name: a}\n---\n{type: App, name: a, namespace: b}\n---\n{type: Node, name: a}"
    assert len(load(text, REGISTRY)) == 3


def test_manifest_error_carries_its_problems() -> None:
    """It is a CallerError and a ValueError. Its text has one line per problem, and it survives pickling."""
    with pytest.raises(ManifestError) as caught:
        load("type: App\nnmae: web", REGISTRY, source="web.yaml")
    error = caught.value
    assert isinstance(error, CallerError)
    assert isinstance(error, ValueError)
    assert error.problems == (
        Problem("web.yaml", 1, 1, "", "name is required"),
        Problem("web.yaml", 2, 1, "nmae", "a document has no field 'nmae'; did you mean 'name'?"),
    )
    assert str(error) == "\n".join(map(str, error.problems))
    again = pickle.loads(pickle.dumps(error))
    assert (again.problems, str(again)) == (error.problems, str(error))


def test_import_of_manifests_does_not_import_the_parser_of_hcl() -> None:
    """A program without HCL does not pay for its parser, which is an extra."""
    code = "import sys, headway.manifest; sys.exit('tree_sitter' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
