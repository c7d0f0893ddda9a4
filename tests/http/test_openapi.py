"""The OpenAPI document: its examples work, and random requests made from it get only the answers that it describes."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
import trio
from betterproto2.casing import camel_case

import headway
from headway import field
from headway.api import MAX_PAGE, MAX_TEXT
from headway.manifest import RANGES, enum_names, fields_of
from headway.protobuf import LONGEST_DURATION
from headway.resource import MAX_NAME, ResourceType
from tests.http.kit import SITE, TEAM, TEAMS, Api, serving
from tests.manifest.messages import CHOICE, EVERY


async def test_examples_of_the_document_work() -> None:
    """Every write has one, unless a hook refuses it. They are sent in the order of the document."""
    async with serving() as api:
        document = (await api.http.get("/api/openapi.json")).json()
        ran: list[str] = []
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if "requestBody" not in operation:
                    continue
                ((kind, content),) = operation["requestBody"]["content"].items()
                if "example" not in content:
                    continue
                for parameter in operation["parameters"]:
                    path = path.replace(f"{{{parameter['name']}}}", str(parameter.get("example")))
                answer = await api.http.request(method, path, json=content["example"], headers={"content-type": kind})
                assert answer.status_code == 200, (method, path, answer.text)
                ran.append(operation["operationId"])
        verbs = ("write", "merge", "write-status")
        names = (TEAM.name, SITE.name, "vault.v1.Secret")
        assert sorted(ran) == sorted(f"{verb}-{name}" for verb in verbs for name in names)
        team = (await api.client.read(TEAM, "example")).data
        assert (team.note, team.budget, team.members[0].login, team.labels) == ("text", 7, "text", {"text": "text"})


async def test_document_describes_a_field_of_every_kind() -> None:
    """The examples are accepted, and every answer fits the schema of its type, also with extreme values."""
    async with serving(more=[EVERY, CHOICE]) as api:
        answer = await api.http.get("/api/openapi.json")
        assert answer.status_code == 200, api.failures
        document = answer.json()
        for type, fields in ((EVERY, _EXTREMES), (CHOICE, [{"wrapped": "-1", "from": "x", "path": ""}, {"port": 0}])):
            path = f"/api/fleet/v1/{type.name.kind.lower()}/{{name}}"
            example = document["paths"][path]["put"]["requestBody"]["content"]["application/json"]["example"]
            schema = _schema(document, f"{type.name}.Resource")
            for data in (example["data"], {}, *fields):
                answer = await api.http.put(path.format(name="one"), json={"data": data})
                assert answer.status_code == 200, (data, answer.text)
                schema.validate(answer.json())
                schema.validate((await api.http.get(path.format(name="one"))).json())
            # A field without an example would be a kind that this test misses. A oneof has one arm.
            names = {camel_case(name) for name, field in fields_of(type.payload).by_name.items() if field.group is None}
            assert names <= set(example["data"])


@pytest.mark.parametrize("written", ["float", "float | None", "list[float]", "dict[str, float]"])
async def test_document_describes_a_type_whose_only_field_is_a_float(written: str) -> None:
    made: Any = type("Sensor", (), {"__annotations__": {"celsius": written}, "celsius": field(1)})
    sensor = ResourceType("lab", "v1", "Sensor", headway.message(made))
    async with serving(more=[sensor]) as api:
        answer = await api.http.get("/api/openapi.json")
        assert answer.status_code == 200, api.failures


_HUGE = {"single": 3e38, "double": -1e308, "int64": str(-(2**63)), "uint64": str(2**64 - 1), "int32": -(2**31)}
_EXTREMES: list[dict[str, Any]] = [
    _HUGE,
    *({"single": text, "double": text, "singles": [text], "byInt": {"1": text}} for text in ("NaN", "-Infinity")),
    {"maybeText": "", "maybeFlag": False, "maybeInt": "0", "maybePolicy": "ALWAYS", "maybeLimits": {"cpu": "Infinity"}},
    {"span": "-0.000001s", "maybeSpan": "0s", "moment": "0001-01-01T00:00:00Z", "byFlag": {"false": "NEVER"}},
]


def _schema(document: dict[str, Any], name: str) -> Any:
    root = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    return jsonschema_rs.Draft202012Validator(root, validate_formats=True)


async def test_document_describes_every_path_and_method() -> None:
    from headway.http._app import COLLECTION, ITEM, PATHS, STATUS

    async with serving() as api:
        paths = (await api.http.get("/api/openapi.json")).json()["paths"]
        for path in (COLLECTION, ITEM, STATUS):
            described = paths[path.replace("{group}/{version}/{kind}", "staff/v1/team")]
            assert {method.upper() for method in described} == {*PATHS[path]}
        assert not [path for path in paths if path.startswith("/api/internal")]


async def test_bounds_of_the_document_are_those_of_the_server() -> None:
    """The longest and the largest values that a schema allows are accepted, and the next ones are refused by both."""
    values_of: dict[str, tuple[Any, Any]] = {
        "name": ("a" * MAX_NAME, "a" * (MAX_NAME + 1)),
        "name_prefix": ("a-" * (MAX_NAME // 2) + "a", "a" * (MAX_NAME + 1)),
        "key": ("k" * MAX_TEXT, "k" * (MAX_TEXT + 1)),
        "page_size": (MAX_PAGE, MAX_PAGE + 1),
    }
    async with serving(more=[EVERY]) as api:
        document = (await api.http.get("/api/openapi.json")).json()
        bounded: dict[str, Any] = {}
        for operations in (document["paths"][path] for path in document["paths"] if "/team" in path):
            for operation in operations.values():
                bounded |= {each["name"]: each["schema"] for each in operation["parameters"]}
        bounded = {name: schema for name, schema in bounded.items() if {"pattern", "minimum"} & {*schema}}
        # The units have the schema of a name where they are not for a list, which also takes a `*`.
        assert {*bounded} - {"partition", "namespace"} == {*values_of}
        made = await api.client.apply(TEAM.new(values_of["name"][0]))
        status = {"observedGeneration": made.generation, "conditions": []}
        for name, values in values_of.items():
            schema = jsonschema_rs.Draft202012Validator(bounded[name])
            assert [schema.is_valid(each) for each in values] == [True, False], name
            codes = []
            for value in values:
                if name == "name":
                    answer = await api.http.put(f"{TEAMS}/{value}", json={})
                elif name == "key":
                    answer = await api.http.put(f"{TEAMS}/{made.name}/status/{value}", json=status)
                else:
                    answer = await api.http.get(TEAMS, params={name: value})
                codes.append(answer.status_code)
            assert codes == [200, 400], name


async def test_bounds_of_fields_in_the_document_are_those_of_manifests() -> None:
    """A value at the end of its range is valid, is stored, and is returned in the form that the schema describes."""
    async with serving(more=[EVERY]) as api:
        document = (await api.http.get("/api/openapi.json")).json()
        schema = _schema(document, f"{EVERY.name}.Resource")
        path = "/api/fleet/v1/every/ends"
        for name, each in fields_of(EVERY.payload).by_name.items():
            kind, field = each.element.kind, camel_case(name)
            if each.shape == "repeated" or each.key is not None:
                continue
            ends: list[Any] = []
            if kind in RANGES:
                ends = [str(end) if "64" in kind else end for end in RANGES[kind]]
            elif kind == "enum":
                ends = sorted(enum_names(each.element.enum))
            elif kind == "duration":
                ends = [f"{LONGEST_DURATION}s", f"-{LONGEST_DURATION}s", "0.000001s"]
            for end in ends:
                answer = await api.http.put(path, json={"data": {field: end}})
                assert answer.status_code == 200, (field, end, answer.text)
                schema.validate(answer.json())
                assert answer.json()["data"].get(field, "") in (end, ""), field


@pytest.mark.wide
@pytest.mark.timeout(300)
async def test_random_requests_get_the_answers_that_the_document_describes() -> None:
    """Valid and invalid requests, made by schemathesis, never fail a handler, and every answer fits its schema."""
    async with serving() as api:
        await trio.to_thread.run_sync(_fuzz, api)
        assert [str(error) for _, error in api.failures] == []
        assert (await api.http.get(TEAMS)).status_code == 200


def _fuzz(api: Api) -> None:
    import schemathesis
    from hypothesis import HealthCheck, Phase, settings
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error

    document = trio.from_thread.run(_document, api)
    for operations in document["paths"].values():
        for operation in operations.values():
            # A watch doesn't end.
            operation["parameters"] = [each for each in operation["parameters"] if each["name"] != "watch"]
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=f"http://{api.address}")
    checks = [
        not_a_server_error,
        schemathesis.checks.CHECKS.get_one("status_code_conformance"),
        schemathesis.checks.CHECKS.get_one("content_type_conformance"),
        schemathesis.checks.CHECKS.get_one("response_schema_conformance"),
    ]
    count = 0
    for found in schema.get_all_operations():
        operation = found.ok()  # type: ignore[union-attr]  # the document is valid
        if "team" not in operation.path:
            continue
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            def check(case: Any) -> None:
                nonlocal count
                count += 1
                answer = case.call(timeout=20)
                try:
                    case.validate_response(answer, checks=checks)
                except (Exception, BaseExceptionGroup) as error:
                    request = f"{answer.request.method} {answer.request.url} {answer.request.body!r}"
                    raise AssertionError(f"{request}: {answer.status_code} {answer.text:.500}") from error

            bounded = settings(
                max_examples=8,
                deadline=None,
                database=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            from hypothesis import given

            bounded(given(case=operation.as_strategy(generation_mode=mode))(check))()
    assert count > 50


async def _document(api: Api) -> Any:
    return (await api.http.get("/api/openapi.json")).json()
