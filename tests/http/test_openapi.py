"""The OpenAPI document: its examples work, and random requests made from it get only the answers that it describes."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.http.kit import SITE, TEAM, TEAMS, Api, serving


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


async def test_document_describes_every_path_and_method() -> None:
    from headway.http._app import COLLECTION, ITEM, PATHS, STATUS

    async with serving() as api:
        paths = (await api.http.get("/api/openapi.json")).json()["paths"]
        for path in (COLLECTION, ITEM, STATUS):
            described = paths[path.replace("{group}/{version}/{kind}", "staff/v1/team")]
            assert {method.upper() for method in described} == {*PATHS[path]}
        assert not [path for path in paths if path.startswith("/api/internal")]


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
