"""A real API server takes the CRDs and the roles of declared types, and checks objects as they say."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway import field, message
from headway.kubernetes._crd import Document, Names, Use, Version, crd_of, rbac_of, yaml_of
from headway.kubernetes._crd_changes import diff
from headway.kubernetes._json import apply_text, body_of, payload_of
from headway.kubernetes._schema import Hints
from headway.protobuf import decode, encode, equal
from tests.helpers.kube_server import KubeServer
from tests.kubernetes._declared import (
    NAMES,
    VERSION,
    Node,
    Phase,
    Port,
    Stage,
    Step,
    Website,
    WebsiteSpec,
    WebsiteStatus,
)

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
STRICT = {"fieldValidation": "Strict", "fieldManager": "tests"}


class Sites(NamedTuple):
    """The type `Website` under a group of its own, and a client of the server."""

    client: httpx.Client
    names: Names
    namespace: str

    @property
    def path(self) -> str:
        return f"/apis/{self.names.group}/v1/namespaces/{self.namespace}/websites"

    def document(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        return {"apiVersion": f"{self.names.group}/v1", "kind": "Website", "metadata": {"name": name}, **body}

    def create(self, name: str, body: dict[str, Any]) -> httpx.Response:
        return self.client.post(self.path, json=self.document(name, body), params={"fieldValidation": "Strict"})


def apply(client: httpx.Client, path: str, document: dict[str, Any], manager: str = "tests") -> httpx.Response:
    """Apply a document on the server."""
    return apply_body(client, path, apply_text(document), manager)


def apply_body(client: httpx.Client, path: str, body: bytes | str, manager: str = "tests") -> httpx.Response:
    headers = {"Content-Type": "application/apply-patch+yaml"}
    return client.patch(path, content=body, headers=headers, params=STRICT | {"fieldManager": manager})


def establish(client: httpx.Client, document: Document, namespace: str) -> None:
    """Apply a CRD, and wait until its objects can be created."""
    path = f"{CRDS}/{document['metadata']['name']}"
    answer = apply_body(client, path, yaml_of([document]))
    assert answer.status_code in (200, 201), answer.text
    found: Any = None
    while found != "True":
        conditions = client.get(path).json()["status"]["conditions"] or []
        found = next((each["status"] for each in conditions if each["type"] == "Established"), None)
    spec = document["spec"]
    for each in spec["versions"]:
        inside = f"namespaces/{namespace}/" if spec["scope"] == "Namespaced" else ""
        while client.get(f"/apis/{spec['group']}/{each['name']}/{inside}{spec['names']['plural']}").status_code != 200:
            pass


def new_group() -> str:
    return f"g{uuid.uuid4().hex[:8]}.example.org"


@pytest.fixture(scope="module")
def sites(kube: KubeServer) -> Iterator[Sites]:
    names = replace(NAMES, group=new_group())
    namespace = kube.new_namespace()
    with kube.client() as client:
        establish(client, crd_of(names, [VERSION]), namespace)
        yield Sites(client, names, namespace)


def test_crd_is_accepted_and_a_second_apply_changes_nothing(sites: Sites) -> None:
    path = f"{CRDS}/websites.{sites.names.group}"
    before = sites.client.get(path).json()
    accepted = {each["type"]: each["status"] for each in before["status"]["conditions"]}
    assert accepted["NamesAccepted"] == accepted["Established"] == "True"
    assert "NonStructuralSchema" not in accepted
    again = apply_body(sites.client, path, yaml_of([crd_of(sites.names, [VERSION])]))
    assert again.headers.get("warning") is None
    assert again.json()["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert diff(before, crd_of(sites.names, [VERSION])) == []


FULL = Website(
    spec=WebsiteSpec(
        host="Größe.example.org",
        min_size=0,
        max_size=(1 << 63) - 1,
        count=(1 << 63) - 1,
        small=(1 << 32) - 1,
        ratio=1e21,
        part=0.1,
        paused=True,
        data=b"\0\xff",
        begun_at=datetime(2024, 2, 29, 12, 30, 0, 123456, tzinfo=UTC),
        timeout=timedelta(hours=1, microseconds=-1500),
        phase=Phase.Ready,
        ports=[Port(name="http", port=80, wait=timedelta(milliseconds=1.5), namespace=False), Port(name="b", port=0)],
        words=["", "a\u0085\u2028b"],
        waits=[timedelta(0), -timedelta(seconds=90)],
        labels={"": "x", "a": ""},
        backends={"one": Port(name="one", port=1)},
        url="https://example.org",
        tree=Node(text="a", child=Node(text="b", child=Node(text="c"))),
        token="secret",
        levels=[Phase.Pending, Phase.Ready],
        stages=[Stage(steps=[Step(one=""), Step()], by_name={"a": Step(six="x", wait=timedelta(seconds=1))})],
    ),
)


def test_object_with_every_kind_of_field_comes_back_byte_for_byte(sites: Sites) -> None:
    sent = encode(FULL)
    body = body_of(Website, sent)
    answer = sites.create("full", body)
    assert answer.status_code == 201, answer.text
    stored = sites.client.get(f"{sites.path}/full").json()
    assert json.dumps(stored["spec"], sort_keys=True) == json.dumps(body["spec"], sort_keys=True)
    read = payload_of(Website, {"spec": stored["spec"]})
    assert body_of(Website, read) == body
    # An update with the same body makes no new version.
    document = stored | body_of(Website, read)
    again = sites.client.put(f"{sites.path}/full", json=document, params={"fieldValidation": "Strict"})
    assert again.json()["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]


def test_server_stores_other_forms_of_a_value_as_they_are(sites: Sites) -> None:
    spec = {"host": "a", "timeout": "90s", "begunAt": "2024-02-29T12:30:00.123456789+01:00", "ratio": 2.0, "words": []}
    spec |= {"small": 1e3, "minSize": 2, "paused": False, "count": 0}
    answer = sites.create("forms", {"spec": spec})
    assert answer.status_code == 201, answer.text
    stored = sites.client.get(f"{sites.path}/forms").json()
    assert stored["spec"] == spec
    again = apply(
        sites.client,
        f"{sites.path}/forms",
        sites.document("forms", body_of(Website, payload_of(Website, {"spec": stored["spec"]}))),
    )
    assert again.status_code == 200, again.text
    assert again.json()["spec"] == spec


@pytest.mark.parametrize("written", [apply_text, lambda document: yaml_of([document])])
def test_every_text_survives_an_apply(kube: KubeServer, namespace: str, written: Callable[[Any], bytes | str]) -> None:
    every = "".join(chr(code) for code in range(0x10000) if not 0xD800 <= code < 0xE000) + "\U0001f680\U0001fffe"
    texts = ["y", "N", "yes", "0o7", "1e3", "1_0", ".5", "+1", "=", "~", "null", "2024-02-29", "", " ", "a\n", every]
    data = {f"k{index}": text for index, text in enumerate(texts)}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "y"}, "data": data}
    with kube.client() as client:
        path = f"/api/v1/namespaces/{namespace}/configmaps/y"
        answer = apply_body(client, path, written(document))
        assert answer.status_code == 201, answer.text
        assert client.get(path).json()["data"] == data


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
POSITIVE_ZERO = (0.0).__add__
DURATIONS = st.timedeltas(timedelta(-90_000), timedelta(90_000))
TIMES = st.datetimes(timezones=st.just(UTC))
PORTS = st.builds(Port, name=TEXTS, port=st.integers(-(1 << 31), (1 << 31) - 1), wait=DURATIONS)
SPECS = st.builds(
    WebsiteSpec,
    host=TEXTS.map("a".__add__),
    max_size=st.integers(1, (1 << 63) - 1),
    count=st.integers(0, (1 << 63) - 1),
    small=st.integers(0, (1 << 32) - 1),
    ratio=st.floats(allow_nan=False, allow_infinity=False).map(POSITIVE_ZERO),
    part=st.floats(allow_nan=False, allow_infinity=False, width=32).map(POSITIVE_ZERO),
    paused=st.booleans(),
    data=st.binary(max_size=5),
    begun_at=TIMES,
    timeout=DURATIONS,
    phase=st.sampled_from(Phase),
    words=st.lists(TEXTS, max_size=3),
    waits=st.lists(DURATIONS, max_size=3),
    labels=st.dictionaries(TEXTS, TEXTS, max_size=3),
    backends=st.dictionaries(TEXTS, PORTS, max_size=3),
    url=st.none() | TEXTS,
    tree=st.builds(Node, text=TEXTS, child=st.none() | st.builds(Node, text=TEXTS)),
    token=TEXTS,
    levels=st.lists(st.sampled_from(Phase), max_size=3),
)


@given(SPECS)
def test_every_payload_is_stored_as_it_is_sent(sites: Sites, spec: WebsiteSpec) -> None:
    body = body_of(Website, encode(Website(spec=spec)))
    name = f"any-{uuid.uuid4().hex}"
    answer = sites.create(name, body)
    assert answer.status_code == 201, answer.text
    stored = answer.json()
    assert stored["spec"].keys() - body["spec"].keys() <= {"minSize", "count"}
    read = payload_of(Website, {"spec": stored["spec"]})
    # The server fills in a default.
    assert equal(Website(spec=spec), without_kept(read, min_size=None))
    again = apply(sites.client, f"{sites.path}/{name}", sites.document(name, body_of(Website, read)))
    assert again.status_code == 200, again.text
    assert again.json()["spec"] == stored["spec"]


def without_kept(payload: bytes, **changes: Any) -> Website:
    """Return a payload without what is kept of its JSON, and with other values."""
    made = decode(Website, payload)
    made._unknown_fields = b""  # type: ignore[attr-defined]
    for name, value in changes.items():
        setattr(made.spec, name, value)
    return made


def test_server_fills_in_defaults(sites: Sites) -> None:
    assert sites.create("defaults", {"spec": {"host": "a"}}).json()["spec"] == {"host": "a", "minSize": 1, "count": 0}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({}, "spec.host: Required value"),
        ({"host": 5}, 'spec.host: Invalid value: "integer": spec.host in body must be of type string: "integer"'),
        ({"host": "a" * 254}, "spec.host: Too long: may not be more than 253 bytes"),
        ({"minSize": 1 << 31}, "spec.minSize: Invalid value: 2147483648"),
        ({"minSize": 5, "maxSize": 4}, "spec: Invalid value: minSize must not be above maxSize"),
        ({"maxSize": "5"}, "spec.maxSize: Invalid value"),
        ({"count": -1}, "spec.count: Invalid value: -1: spec.count in body should be greater than or equal to 0"),
        ({"count": 1 << 63}, "spec.count: Invalid value"),
        ({"count": (1 << 64) - 1}, "spec.count: Invalid value"),
        ({"small": 1 << 32}, "spec.small: Invalid value: 4294967296"),
        ({"ratio": "x"}, "spec.ratio: Invalid value"),
        ({"paused": "yes"}, "spec.paused: Invalid value"),
        ({"data": "%"}, "spec.data: Invalid value"),
        ({"begunAt": "today"}, "spec.begunAt: Invalid value"),
        ({"timeout": "1d"}, 'must be a duration such as "1h30m" or "1.5s"'),
        ({"timeout": "3"}, 'must be a duration such as "1h30m" or "1.5s"'),
        ({"waits": ["1s", "1d"]}, "spec.waits[1]: Invalid value"),
        ({"phase": "ready"}, 'spec.phase: Unsupported value: "ready": supported values: "Pending", "Ready"'),
        ({"levels": ["x"]}, "spec.levels[0]: Unsupported value"),
        ({"ports": [{"name": "a"}]}, "spec.ports[0].port: Required value"),
        ({"ports": [{"name": "a", "port": 1}] * 2}, 'spec.ports[1]: Duplicate value: {"name":"a"}'),
        (
            {"ports": [{"name": "a", "port": 1, "tcp": True, "namespace": False}]},
            "at most one of tcp, namespace may be set",
        ),
        ({"file": "a", "git": ""}, "spec: Invalid value: at most one of file, url, git may be set"),
        ({"stages": [{"byName": {"a": {"two": "a", "six": "b"}}}]}, "must validate one and only one schema (oneOf)"),
        ({"labels": {"a": 1}}, "spec.labels.a: Invalid value"),
    ],
)
def test_wrong_value_is_refused(sites: Sites, spec: dict[str, Any], problem: str) -> None:
    answer = sites.create("wrong", {"spec": spec if not spec or "host" in spec else {"host": "a"} | spec})
    assert answer.status_code == 422, answer.text
    assert problem in answer.json()["message"].replace('Invalid value: "object": ', "Invalid value: ").replace(
        'Invalid value: "string": ', "Invalid value: "
    )


def test_object_without_spec_and_unknown_field_are_refused(sites: Sites) -> None:
    answer = sites.create("wrong", {})
    assert (answer.status_code, "spec: Required value" in answer.text) == (422, True)
    assert "unknown field" in sites.create("wrong", {"spec": {"host": "a", "color": "red"}}).text
    # What is below the second node of a tree is not checked, and is kept.
    tree = {"text": "a", "child": {"text": "b", "child": {"other": 1}}}
    assert sites.create("tree", {"spec": {"host": "a", "tree": tree}}).json()["spec"]["tree"] == tree


def test_conditions_of_two_writers_are_merged(sites: Sites) -> None:
    assert sites.create("conditions", {"spec": {"host": "a"}}).status_code == 201
    path = f"{sites.path}/conditions/status"
    since = {"lastTransitionTime": "2024-02-29T12:30:00Z", "reason": "AsExpected", "message": "", "status": "True"}
    for manager, kind in (("one", "Ready"), ("two", "Synced")):
        status = {"conditions": [since | {"type": kind}]}
        answer = apply(sites.client, path, sites.document("conditions", {"status": status}), manager)
        assert answer.status_code == 200, answer.text
    assert [each["type"] for each in answer.json()["status"]["conditions"]] == ["Ready", "Synced"]
    status = body_of(Website, encode(Website(status=WebsiteStatus(ready=3, size=2))))
    answer = apply(sites.client, path, sites.document("conditions", status), "three")
    scale = sites.client.get(f"{sites.path}/conditions/scale").json()
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (1, 2)
    wrong = {"conditions": [since | {"type": "Ready", "status": "maybe"}]}
    assert apply(sites.client, path, sites.document("conditions", {"status": wrong}), "one").status_code == 422


def test_columns_show_the_state(sites: Sites) -> None:
    accept = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    table = sites.client.get(sites.path, headers=accept).json()
    assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "READY", "SINCE", "HOST", "Age"]


def test_program_with_its_roles_has_the_rights_that_it_needs_and_no_others(kube: KubeServer, sites: Sites) -> None:
    group, namespace = sites.names.group, sites.namespace
    uses = [Use(group, "websites", manages=True), Use("apps", "deployments", writes=True), Use("", "configmaps")]
    documents = rbac_of(f"sites-{uuid.uuid4().hex[:6]}", uses, namespace=namespace)
    plurals = {"ServiceAccount": "serviceaccounts", "ClusterRole": "clusterroles", "Role": "roles"}
    plurals |= {"ClusterRoleBinding": "clusterrolebindings", "RoleBinding": "rolebindings"}
    for each in documents:
        inside = f"/namespaces/{namespace}" if "namespace" in each["metadata"] else ""
        root = "/api/v1" if each["apiVersion"] == "v1" else f"/apis/{each['apiVersion']}"
        path = f"{root}{inside}/{plurals[each['kind']]}/{each['metadata']['name']}"
        assert apply_body(sites.client, path, yaml_of([each])).status_code == 201
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/{documents[0]['metadata']['name']}/token"
    token = sites.client.post(account, json={"spec": {}}).json()["status"]["token"]

    def allowed(verb: str, group: str, plural: str, name: str = "", inside: str = namespace) -> bool:
        resource, _, sub = plural.partition("/")
        asked = {"verb": verb, "group": group, "resource": resource, "subresource": sub, "name": name}
        review = {"spec": {"resourceAttributes": asked | ({"namespace": inside} if inside else {})}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        found: bool = program.post(path, json=review).json()["status"]["allowed"]
        return found

    with kube.client(token) as program:
        assert program.get(sites.path).status_code == 200
        assert program.get("/api/v1/namespaces/kube-system").status_code == 200
        assert program.get("/api/v1/namespaces/default").status_code == 403
        for verb in ("get", "list", "watch", "patch", "update"):
            assert allowed(verb, group, "websites", inside="")
        assert allowed("patch", group, "websites/status", inside="")
        assert allowed("update", group, "websites/finalizers", inside="")
        assert not allowed("create", group, "websites")
        assert not allowed("delete", group, "websites")
        assert all(allowed(verb, "apps", "deployments") for verb in ("create", "delete", "patch", "update", "watch"))
        assert not allowed("patch", "apps", "deployments/status")
        assert allowed("watch", "", "configmaps")
        assert not allowed("update", "", "configmaps")
        assert allowed("create", "events.k8s.io", "events", inside="")
        assert all(
            allowed(verb, "coordination.k8s.io", "leases") for verb in ("create", "get", "list", "update", "watch")
        )
        assert not allowed("create", "coordination.k8s.io", "leases", inside="default")


def test_cluster_refuses_what_the_differences_say(kube: KubeServer, namespace: str) -> None:
    names = Names(new_group(), "Website", "websites")
    path = f"{CRDS}/websites.{names.group}"
    first = crd_of(names, [Version("v1", Website)])
    moved = crd_of(replace(names, scope="Cluster"), [Version("v1", Website)])
    second = crd_of(names, [Version("v2", Website)])
    both = crd_of(names, [Version("v1", Website, stored=False), Version("v2", Website)])
    with kube.client() as client:
        establish(client, first, namespace)
        present = client.get(path).json()
        for refused in (moved, second):
            assert any("the cluster refuses it" in each for each in diff(present, refused))
            assert apply(client, path, refused).status_code == 422
        assert diff(present, both) == []
        assert apply(client, path, both).status_code == 200
        # Objects may still be stored in v1, as the status says.
        assert client.get(path).json()["status"]["storedVersions"] == ["v1", "v2"]
        assert diff(client.get(path).json(), second)[0].startswith("v1 is removed, but objects may be stored in it")
        assert apply(client, path, second).status_code == 422


@message
class Job:
    command: str = field(1)


def test_cluster_scoped_type(kube: KubeServer, namespace: str) -> None:
    names = Names(new_group(), "Job", "jobs", scope="Cluster")
    version = Version("v1", Job, Hints(limits={"command": {"minLength": 2}}))
    with kube.client() as client:
        establish(client, crd_of(names, [version]), namespace)
        path = f"/apis/{names.group}/v1/jobs"
        document = {"apiVersion": f"{names.group}/v1", "kind": "Job", "metadata": {"name": "a"}, "command": "ls"}
        assert client.post(path, json=document).status_code == 201
        assert client.post(path, json=document | {"metadata": {"name": "b"}, "command": "l"}).status_code == 422


def test_diff_names_versions_that_nothing_converts() -> None:
    older, newer = replace(VERSION, stored=False), replace(VERSION, name="v2", payload=Node, hints=Hints(), columns={})
    before, after = crd_of(NAMES, [VERSION]), crd_of(NAMES, [older, newer])
    (problem,) = diff(before, after)
    assert problem.startswith("v1 and v2 differ, and no webhook converts between them")
    after["spec"]["conversion"] = {"strategy": "Webhook"}
    assert diff(before, after) == []
    # One that is in the cluster stays, because an apply does not name it.
    before["spec"]["conversion"] = after["spec"].pop("conversion")
    assert diff(before, after) == []
