"""Message classes become structural schemas, CRDs are stable, and changes that lose data are found."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import yaml

import headway
from headway import field, kubernetes, message
from headway.errors import DeclarationError
from headway.kubernetes._crd import Names, Use, Version, crd_of, rbac_of, yaml_of
from headway.kubernetes._crd_changes import diff
from headway.kubernetes._schema import CONDITIONS, Hints, schema_of
from tests.kubernetes._declared import HINTS, NAMES, VERSION, Website


def spec_of(hints: Hints = HINTS) -> dict[str, Any]:
    found: dict[str, Any] = schema_of(Website, hints)["properties"]["spec"]
    return found


def test_scalars_lists_and_maps_have_their_types() -> None:
    fields = spec_of()["properties"]
    assert fields["host"] == {"type": "string", "maxLength": 253}
    assert fields["minSize"]["format"] == "int32"
    assert fields["minSize"]["default"] == 1
    assert fields["maxSize"] == {"type": "integer", "format": "int64"}
    assert fields["begunAt"] == {"type": "string", "format": "date-time"}
    assert fields["timeout"]["x-kubernetes-validations"][0]["rule"] == "duration(self) == duration(self)"
    assert fields["phase"] == {"type": "string", "enum": ["Pending", "Ready"]}
    assert fields["words"] == {"type": "array", "items": {"type": "string"}}
    assert fields["labels"] == {"type": "object", "additionalProperties": {"type": "string"}}
    assert fields["token"] == {"type": "string", "format": "password"}
    assert fields["ports"]["x-kubernetes-list-map-keys"] == ["name"]
    assert fields["ports"]["maxItems"] == 100


def test_docstrings_become_descriptions() -> None:
    spec = spec_of()
    port = spec["properties"]["ports"]["items"]
    assert spec["description"] == "What a site should be."
    assert port["description"] == "A port of the site."
    assert port["properties"]["name"]["description"] == "tells the ports apart, and is also their DNS label."
    assert "description" not in schema_of(Website)


def test_required_fields_and_keys_are_required_with_what_is_around_them() -> None:
    schema = schema_of(Website, HINTS)
    assert schema["required"] == ["spec"]
    assert schema["properties"]["spec"]["required"] == ["host"]
    assert schema["properties"]["spec"]["properties"]["ports"]["items"]["required"] == ["name", "port"]
    assert "required" not in schema_of(Website)


def test_oneof_is_a_rule_and_words_of_cel_are_escaped() -> None:
    spec = spec_of()
    assert spec["x-kubernetes-validations"] == [
        {
            "rule": "(has(self.file) ? 1 : 0) + (has(self.url) ? 1 : 0) + (has(self.git) ? 1 : 0) <= 1",
            "message": "at most one of file, url, git may be set",
        },
        {
            "rule": "!has(self.maxSize) || self.minSize <= self.maxSize",
            "message": "minSize must not be above maxSize",
        },
    ]
    items = spec["properties"]["ports"]["items"]
    assert items["x-kubernetes-validations"][0]["rule"] == "!(has(self.tcp) && has(self.__namespace__))"


def test_class_that_contains_itself_ends_where_it_comes_again() -> None:
    tree = spec_of()["properties"]["tree"]
    assert tree["properties"]["text"] == {"type": "string"}
    assert tree["properties"]["child"] == {
        "type": "object",
        "description": "A Node, not checked further.",
        "x-kubernetes-preserve-unknown-fields": True,
    }


@message
class Condition:
    type: str = field(1)
    status: str = field(2)


@message
class OwnStatus:
    conditions: list[Condition] = field(1)


@message
class Own:
    status: OwnStatus = field(1)


@message
class Plain:
    size: int = field(1)


def test_conditions_are_added_to_the_status_unless_the_class_has_them() -> None:
    assert schema_of(Website)["properties"]["status"]["properties"]["conditions"] == CONDITIONS
    assert schema_of(Plain)["properties"]["status"]["properties"] == {"conditions": CONDITIONS}
    own = schema_of(Own)["properties"]["status"]["properties"]["conditions"]
    assert own["items"]["properties"].keys() == {"type", "status"}
    assert own["items"]["required"] == own["x-kubernetes-list-map-keys"] == ["type"]


@message
class Clash:
    metadata: str = field(1)


@message
class Odd:
    status: str = field(1)


@pytest.mark.parametrize(
    ("cls", "hints", "problem"),
    [
        (
            Website,
            Hints(required=["spec.hots"]),
            "Website: required: 'spec.hots': no such field; did you mean 'spec.host'",
        ),
        (Website, Hints(required=["spec.max_size"]), "no such field; did you mean 'spec.maxSize'"),
        (
            Website,
            Hints(required=["spec.maxSize"]),
            "declare the field as `max_size: X | None`, because a zero would be left",
        ),
        (Website, Hints(rules={"spec": "self.minSize > 0"}), "must be a list of rules, or a dict of their messages"),
        (
            Website,
            Hints(list_keys={"spec.words": ["name"]}),
            "'name' is not a text or a number in the items of the list",
        ),
        (Website, Hints(list_keys={"spec.ports": "name"}), "'name' must be a list of names of fields"),
        (Website, Hints(list_keys={"spec.labels": ["name"]}), "'spec.labels': only a list has keys"),
        (
            Website,
            Hints(defaults={"spec.maxSize": 3}),
            "`max_size: X | None`, because a zero would be left out and become 3",
        ),
        (Website, Hints(defaults={"spec.minSize": "3"}), 'defaults: .*minSize: "3" is not a whole number'),
        (
            Website,
            Hints(limits={"spec.host": {"maxlength": 3}}),
            "unknown keyword 'maxlength'; did you mean 'maxLength'",
        ),
        (Clash, Hints(), "Clash: every object has a field metadata; choose another name"),
        (Odd, Hints(), "Odd.status must be a message, because the cluster adds conditions"),
    ],
)
def test_wrong_hint_is_named_with_the_right_form(cls: type[Any], hints: Hints, problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        schema_of(cls, hints)


def test_crd_is_the_same_each_time() -> None:
    text = yaml_of([crd_of(NAMES, [VERSION])])
    assert text == yaml_of([crd_of(NAMES, [VERSION])])
    assert "&id" not in text
    assert yaml.safe_load(text) == crd_of(NAMES, [VERSION])
    two = [VERSION, Version("v1beta1", Website, stored=False)]
    assert crd_of(NAMES, two) == crd_of(NAMES, two[::-1])


def test_wrong_version_or_column_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"exactly one version, not \[\]; declare one with stored=True"):
        crd_of(NAMES, [Version("v1", Website, stored=False)])
    with pytest.raises(DeclarationError, match=r"Website v1: columns: 'SIZE': 'status.size' must be a path such as"):
        crd_of(NAMES, [Version("v1", Website, columns={"SIZE": "status.size"})])
    with pytest.raises(DeclarationError, match=r"'.status.sizes': no field sizes; use the names in JSON"):
        crd_of(NAMES, [Version("v1", Website, columns={"SIZE": ".status.sizes"})])
    ready = '.status.conditions[?(@.type=="Ready")].status'
    columns = crd_of(NAMES, [Version("v1", Website, columns={"READY": ready, "AGE": ".metadata.creationTimestamp"})])
    shown = columns["spec"]["versions"][0]["additionalPrinterColumns"]
    assert [(each["name"], each["type"]) for each in shown] == [("READY", "string"), ("AGE", "date")]


def test_rights_in_one_namespace_are_a_role() -> None:
    documents = rbac_of("sites", [Use("example.org", "websites", manages=True)], namespace="web", only_namespace=True)
    assert [each["kind"] for each in documents] == [
        *("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    ]
    assert [each["resources"] for each in documents[1]["rules"]] == [["namespaces"]]
    assert ["websites"] in [each["resources"] for each in documents[3]["rules"]]
    with pytest.raises(DeclarationError, match="sites: nodes belong to the cluster"):
        rbac_of("sites", [Use("", "nodes", cluster_scoped=True)], only_namespace=True)


Granted = dict[tuple[str, str], set[str]]


def granted(app: headway.App, **options: Any) -> Granted:
    """Return the verbs that a program may use, by the namespace (empty for the cluster) and the resource."""
    documents = kubernetes.rights(app, program="sites", namespace="web", **options)
    roles = [each for each in documents if each["kind"] in ("Role", "ClusterRole")]
    bindings = [each for each in documents if each["kind"].endswith("Binding")]
    assert [each["metadata"] for each in bindings] == [each["metadata"] for each in roles]
    for each in bindings:
        assert each["subjects"] == [{"kind": "ServiceAccount", "name": "sites", "namespace": "web"}]
    return {
        (role["metadata"].get("namespace", ""), resource): set(rule["verbs"])
        for role in roles
        for rule in role["rules"]
        for resource in rule["resources"]
    }


async def never(_rt: headway.Runtime, _request: headway.Request[Any]) -> None:
    raise AssertionError("the controller does not run")


def test_types_that_are_watched_in_some_namespaces_have_their_rights_there() -> None:
    app = headway.App("sites")
    kinds = ("Service", "ConfigMap", "Secret", "Pod", "Node")
    service, config_map, secret, pod, node = (kubernetes.builtin(app, "v1", kind) for kind in kinds)
    forms = {
        "one": [config_map.within(namespace="shop"), secret.within(namespace="keys", metadata="a=b")],
        "two": [secret.within(namespace="shop"), pod.within(namespace="shop"), node.within(metadata="a=b")],
        "three": [pod.within(metadata="a=b")],
    }
    for name, of in forms.items():
        watches = [headway.watch(each, headway.mappers.owner()) for each in of]
        writes = [config_map] if name == "one" else []
        app.controller(manages=service.within(namespace="shop"), watches=watches, writes=writes, name=name)(never)
    read, found = {"get", "list", "watch"}, granted(app)
    assert found["shop", "configmaps"] == {*read, "create", "delete", "patch", "update"}
    assert found["shop", "services"] == {*read, "patch", "update"}
    assert found["shop", "services/finalizers"] == {"update"}
    assert found["keys", "secrets"] == found["shop", "secrets"] == found["", "pods"] == found["", "nodes"] == read
    everywhere = [resource for place, resource in found if not place]
    assert sorted(everywhere) == ["events", "namespaces", "nodes", "pods"]
    # What another controller writes, and does not watch, may be anywhere.
    app.controller(manages=service.within(namespace="shop"), writes=[config_map], name="four")(never)
    assert granted(app)["", "configmaps"] == {*read, "create", "delete", "patch", "update"}


def test_program_in_one_namespace_has_no_rights_elsewhere() -> None:
    app = headway.App("sites")
    config_map = kubernetes.builtin(app, "v1", "ConfigMap")
    app.controller(manages=config_map.within(namespace="shop"), name="one")(never)
    found = granted(app)
    assert {place for place, resource in found if resource in ("configmaps", "events")} == {"shop"}
    assert ("web", "leases") in found
    assert {resource for place, resource in found if not place} == {"namespaces"}
    assert {place for place, _ in granted(app, only_namespace=True)} == {"", "web"}
    # What is read without a cache may be anywhere.
    app.controller(manages=config_map.within(namespace="shop"), reads=[config_map], name="two")(never)
    assert ("", "configmaps") in granted(app)


def changed(**changes: Any) -> list[str]:
    """Return the differences from a small CRD to one with these changes in the schema of its spec."""
    old = crd_of(Names("example.org", "Website", "websites"), [Version("v1", Website, HINTS)])
    new = copy.deepcopy(old)
    properties = new["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    for name, change in changes.items():
        if change is None:
            del properties[name]
        else:
            properties[name] = {key: value for key, value in (properties[name] | change).items() if value is not None}
    return diff(old, new)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"words": None}, "v1 spec.words is removed: its values are dropped at the next write of an object"),
        (
            {"maxSize": {"type": "string"}},
            "v1 spec.maxSize changes from integer to string: stored values become invalid",
        ),
        (
            {"phase": {"enum": ["Ready", "Failed"]}},
            "v1 spec.phase loses the value Pending: the cluster may refuse writes",
        ),
        ({"host": {"enum": ["a"]}}, "v1 spec.host takes only a from now on"),
        ({"host": {"maxLength": 10}}, "v1 spec.host has maxLength 10, before 253"),
        ({"host": {"minLength": 1}}, "v1 spec.host has minLength 1, before none"),
        ({"host": {"pattern": "a"}}, "v1 spec.host has pattern a, before none"),
        (
            {"maxSize": {"x-kubernetes-validations": [{"rule": "self > 0"}]}},
            "v1 spec.maxSize has the new rule self > 0",
        ),
        ({"words": {"items": {"type": "integer"}}}, r"v1 spec.words\[\*\] changes from string to integer"),
        ({"tree": {"required": ["text"]}}, "v1 spec.tree.text becomes required: .* give it a default"),
        ({"labels": {"additionalProperties": None}}, "v1 spec.labels has no additionalProperties any more"),
        ({"words": {"x-kubernetes-list-type": "set"}}, "v1 spec.words has x-kubernetes-list-type set"),
    ],
)
def test_change_that_refuses_or_loses_data_is_found(changes: dict[str, Any], problem: str) -> None:
    (found,) = changed(**changes)
    assert re.match(problem, found), found


def test_harmless_changes_are_not_reported() -> None:
    wider = {"maxSize": {"type": "number", "format": None}, "phase": {"enum": ["Pending", "Ready", "Failed"]}}
    assert changed(**wider, host={"maxLength": None, "description": "new"}, tree={"default": {}}) == []


def test_changes_of_names_and_versions_are_found() -> None:
    old = crd_of(NAMES, [VERSION, Version("v1beta1", Website, stored=False)])
    new = copy.deepcopy(old)
    new["spec"] |= {"group": "example.com", "scope": "Cluster"}
    new["spec"]["versions"][0]["subresources"] = {}
    new["spec"]["versions"].pop()
    assert diff(old, new) == [
        "spec.group changes from example.org to example.com: the cluster takes it for another type; objects of the old "
        "one are not moved",
        "spec.scope changes from Namespaced to Cluster: the cluster refuses it while the type exists",
        "v1 loses the subresource status: writers of the status fail, and spec writers can change it",
        "v1beta1 is no longer served: clients that use it fail",
    ]
