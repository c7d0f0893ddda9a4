"""What an API server refuses, as an error that a caller of Headway knows."""

from __future__ import annotations

import json
import re
import ssl
from dataclasses import replace
from typing import Any

import httpx
import pytest
import trio
import yaml

from headway.api import Code, Interrupted, NotBegun, call_of, code_of
from headway.client._refusals import client_error
from headway.errors import (
    AlreadyExists,
    Conflict,
    FailedPrecondition,
    FieldConflict,
    HeadwayError,
    HistoryCompacted,
    InvalidArgument,
    NotFound,
    OutcomeUnknown,
    PermissionDenied,
    RateLimited,
    Unauthenticated,
    Unavailable,
    WrongUid,
)
from headway.kubernetes._errors import ApiStatus, Request, failed, refused, refused_by
from headway.kubernetes._http import ApiServer
from tests.kubernetes.conftest import RealServer
from tests.kubernetes.faulty_server import refusal

GET, POST = (Request(method, "/api/v1/pods", "https://10.0.0.1 (a test)") for method in ("GET", "POST"))
OTHER_UID = "11111111-1111-1111-1111-111111111111"


async def _error(server: ApiServer, *args: Any, **kwargs: Any) -> HeadwayError:
    with pytest.raises(HeadwayError) as raised:
        await server.call(*args, **kwargs)
    assert call_of(raised.value) is not None
    return raised.value


def _maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def _map(name: str = "a", **metadata: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"a": "b"}}


async def _apply(server: ApiServer, namespace: str, manager: str, value: str, **metadata: str) -> Any:
    wanted = {**_map(**metadata), "data": {"a": value}}
    path, kind = f"{_maps(namespace)}/a", "application/apply-patch+yaml"
    return await server.call("PATCH", path, params={"fieldManager": manager}, body=wanted, content_type=kind)


# --- The real server ----------------------------------------------------------


async def test_absent_object_is_not_found(server: ApiServer, namespace: str) -> None:
    error = await _error(server, "GET", f"{_maps(namespace)}/no")
    assert type(error) is NotFound
    assert str(error) == 'configmaps "no" not found'
    assert isinstance(error.__cause__, ApiStatus)


async def test_absent_type_is_not_found_and_said_so(server: ApiServer) -> None:
    error = await _error(server, "GET", "/apis/example.org/v9/things")
    assert type(error) is NotFound
    assert "does not serve /apis/example.org/v9/things" in str(error)
    assert "CustomResourceDefinition" in str(error)


async def test_existing_object_already_exists(server: ApiServer, namespace: str) -> None:
    await server.call("POST", _maps(namespace), body=_map())
    assert type(await _error(server, "POST", _maps(namespace), body=_map())) is AlreadyExists


async def test_other_version_is_a_conflict(server: ApiServer, namespace: str) -> None:
    await server.call("POST", _maps(namespace), body=_map())
    error = await _error(server, "PUT", f"{_maps(namespace)}/a", body=_map(resourceVersion="1"))
    assert type(error) is Conflict


async def test_other_uid_is_a_wrong_uid(server: ApiServer, namespace: str) -> None:
    """Each request has a text of its own for it."""
    with pytest.raises(WrongUid):
        await _apply(server, namespace, "m", "b", uid=OTHER_UID)
    await server.call("POST", _maps(namespace), body=_map())
    with pytest.raises(WrongUid):
        await _apply(server, namespace, "m", "b", uid=OTHER_UID)
    path = f"{_maps(namespace)}/a"
    assert type(await _error(server, "PUT", path, body=_map(uid=OTHER_UID))) is WrongUid
    options = {"preconditions": {"uid": OTHER_UID}}
    assert type(await _error(server, "DELETE", path, body=options)) is WrongUid
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a", "uid": OTHER_UID}}
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/a"
    assert type(await _error(server, "PUT", path, body=lease)) is WrongUid


async def test_field_of_another_manager_is_a_field_conflict(server: ApiServer, namespace: str) -> None:
    await _apply(server, namespace, "ann", "1")
    with pytest.raises(FieldConflict) as raised:
        await _apply(server, namespace, "bob", "2")
    assert raised.value.conflicts == (("ann", "data.a"),)


async def test_invalid_object_is_an_invalid_argument_with_its_fields(server: ApiServer, namespace: str) -> None:
    error = await _error(server, "POST", _maps(namespace), body=_map("BAD"))
    assert type(error) is InvalidArgument
    assert 'metadata.name: Invalid value: "BAD"' in str(error)
    status = error.__cause__
    assert isinstance(status, ApiStatus)
    assert [(each.field, each.reason) for each in status.causes] == [("metadata.name", "FieldValueInvalid")]


async def test_unknown_field_is_an_invalid_argument_if_checked(server: ApiServer, namespace: str) -> None:
    params = {"fieldValidation": "Strict"}
    error = await _error(server, "POST", _maps(namespace), params=params, body={**_map(), "dta": {}})
    assert type(error) is InvalidArgument
    assert 'unknown field "dta"' in str(error)


@pytest.mark.parametrize("parts", [19, 30, 40])
async def test_object_that_is_too_large_is_certainly_not_stored(server: ApiServer, namespace: str, parts: int) -> None:
    """Above 1.5 MiB etcd refuses it, with status 500; above 2 MiB its client, and above 3 MiB the API server."""
    env = [{"name": f"A{number}", "value": "x" * 100_000} for number in range(parts)]
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "a", "env": env}]}}
    error = await _error(server, "POST", f"/api/v1/namespaces/{namespace}/pods", body=pod)
    assert type(error) is InvalidArgument
    assert "1.5 MiB" in str(error)


async def test_namespace_that_ends_takes_nothing_new(server: ApiServer, namespace: str) -> None:
    await server.call("DELETE", f"/api/v1/namespaces/{namespace}")
    error = await _error(server, "POST", _maps(namespace), body=_map())
    assert type(error) is FailedPrecondition
    assert "wait until the namespace is gone" in str(error)


async def test_wrong_token_is_unauthenticated(api_server: RealServer) -> None:
    async with ApiServer(api_server.config("not-the-token")) as server:
        error = await _error(server, "GET", "/api/v1/pods")
    assert type(error) is Unauthenticated
    assert "not-the-token" not in str(error)


async def test_caller_without_credentials_is_unauthenticated(api_server: RealServer) -> None:
    async with ApiServer(replace(api_server.config(), token=None)) as server:
        error = await _error(server, "GET", "/api/v1/pods")
    assert type(error) is Unauthenticated
    assert "does not accept the credentials, or got none" in str(error)


RULE = re.compile(
    r"add the rule (\{.*\}) to (a ClusterRole|a Role of namespace (\S+) \(or a ClusterRole\)) that is bound to"
)
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/namespaces/{}/configmaps/a"),
        ("GET", "/api/v1/namespaces/{}/configmaps"),
        ("DELETE", "/apis/apps/v1/namespaces/{}/deployments/a"),
        ("PATCH", "/apis/apps/v1/namespaces/{}/deployments/a/status"),
        ("GET", "/apis/apps/v1/deployments"),
    ],
)
async def test_rule_that_is_named_grants_the_right(
    server: ApiServer, api_server: RealServer, namespace: str, method: str, path: str
) -> None:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await server.call("POST", accounts, body={"metadata": {"name": "me"}})
    issued = await server.call("POST", f"{accounts}/me/token", body={"spec": {}})
    kind = "application/merge-patch+json"
    async with ApiServer(api_server.config(issued["status"]["token"])) as mine:
        error = await _error(mine, method, path.format(namespace), body={}, content_type=kind)
        assert type(error) is PermissionDenied
        assert f"bound to service account me of namespace {namespace}" in str(error)
        found = RULE.search(str(error))
        assert found is not None
        assert (found[3] == namespace) == ("{}" in path)
        role, where = ("Role", f"/namespaces/{namespace}") if found[3] else ("ClusterRole", "")
        made = {"metadata": {"name": namespace}, "rules": [yaml.safe_load(found[1])]}
        await server.call("POST", f"{RBAC}{where}/{role.lower()}s", body=made)
        subject = {"kind": "ServiceAccount", "name": "me", "namespace": namespace}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": namespace}
        bound = {"metadata": {"name": namespace}, "roleRef": reference, "subjects": [subject]}
        await server.call("POST", f"{RBAC}{where}/{role.lower()}bindings", body=bound)
        # The server's authorizer learns of a new rule a moment later.
        with trio.fail_after(10):
            while await _is_denied(mine, method, path.format(namespace), kind):  # noqa: ASYNC110
                await trio.sleep(0.05)


async def _is_denied(server: ApiServer, method: str, path: str, kind: str) -> bool:
    """Return True if the right to make a call is missing."""
    try:
        await server.call(method, path, body={}, content_type=kind)
    except HeadwayError as error:
        return isinstance(error, PermissionDenied)
    return False


# --- A Status by itself -------------------------------------------------------


def _of(request: Request, code: int, reason: str = "", message: str = "no", **details: object) -> HeadwayError:
    error = refused(code, json.dumps(refusal(code, reason, message, **details)).encode(), None, request)
    assert call_of(error) is not None
    return error


def test_expired_history_is_compacted_in_an_answer_and_in_an_event() -> None:
    status = {**refusal(410, "Expired"), "metadata": {"continue": "token"}}
    event = refused_by(ApiStatus(status), GET)
    for error in (event, _of(GET, 410, "Gone")):
        assert type(error) is HistoryCompacted
        assert code_of(error) is Code.OUT_OF_RANGE
    found = event.__cause__
    assert isinstance(found, ApiStatus)
    assert found.fields["metadata"] == {"continue": "token"}


@pytest.mark.parametrize("code", [500, 502, 503, 504])
def test_failed_write_may_have_had_an_effect_and_a_failed_read_has_none(code: int) -> None:
    write, read = _of(POST, code), _of(GET, code)
    assert type(write) is Interrupted
    assert type(read) is NotBegun
    assert type(client_error(write, write=True)) is OutcomeUnknown
    assert type(client_error(read)) is Unavailable


def test_refused_for_now_says_for_how_long() -> None:
    for error in (_of(POST, 429, retryAfterSeconds=7), _of(POST, 503, "ServiceUnavailable", retryAfterSeconds=7)):
        assert isinstance(error, RateLimited)
        assert error.retry_after == 7


def test_503_of_a_proxy_leaves_a_write_open() -> None:
    assert type(refused(503, b"busy", "1", POST)) is Interrupted
    assert type(_of(POST, 503, "ServiceUnavailable")) is Interrupted
    assert type(_of(POST, 503, "Other", retryAfterSeconds=1)) is Interrupted


@pytest.mark.parametrize("given", ["Wed, 21 Oct 2026 07:28:00 GMT", "-1", "1e9", "99999999999", "²", ""])
def test_odd_time_to_wait_counts_as_none(given: str) -> None:
    error = refused(429, b"busy", given, GET)
    assert isinstance(error, RateLimited)
    assert error.retry_after == 1


def test_right_to_set_owners_is_named() -> None:
    text = (
        "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>"
    )
    error = _of(POST, 403, "Forbidden", text)
    assert type(error) is PermissionDenied
    assert 'grant the verb "update" on the subresource "finalizers"' in str(error)


def test_right_to_impersonate_is_named() -> None:
    for verb, resource in (("impersonate", "users"), ("impersonate-on:user-info:list", "configmaps")):
        text = f'x is forbidden: User "bob" cannot {verb} resource "{resource}" in API group "" in the namespace "a"'
        assert '{apiGroups: [""], resources: ["users"], verbs: ["impersonate"]} to a ClusterRole' in str(
            _of(GET, 403, "Forbidden", text)
        )


def test_refusal_of_a_proxy_names_no_rule() -> None:
    error = refused(403, b"<html>blocked</html>", None, POST)
    assert type(error) is PermissionDenied
    assert "blocked" in str(error)
    assert "rule" not in str(error)


def test_cause_that_the_message_lacks_is_added() -> None:
    causes = [{"reason": "FieldValueInvalid", "message": "must be positive", "field": "spec.replicas"}]
    assert str(_of(POST, 422, "Invalid", "it is invalid", causes=causes)) == (
        "it is invalid; spec.replicas: must be positive"
    )


def test_text_of_the_server_is_bounded_and_printable() -> None:
    text = str(_of(POST, 400, "BadRequest", "a\n\x1b[31m" + "x" * 100_000))
    assert text.startswith("a\\n\\x1b[31m")
    assert len(text) < 5_000


@pytest.mark.parametrize("body", [b"[]", b"null", b'{"kind":"Status"}', b'{"kind":"Status","details":{"causes":null}}'])
def test_odd_bodies_are_errors_of_the_code(body: bytes) -> None:
    assert type(refused(500, body, None, POST)) is Interrupted


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", NotBegun),
        ("TLSV1_ALERT_UNKNOWN_CA", NotBegun),
        ("BAD_LENGTH", Interrupted),
    ],
)
def test_alert_about_the_client_certificate_comes_before_any_effect(reason: str, expected: type[Exception]) -> None:
    """In TLS 1.3 it comes only when the request has been sent."""
    error = httpx.ReadError("lost")
    error.__cause__ = ssl.SSLError(1, f"[SSL: {reason}]")
    error.__cause__.reason = reason
    found = failed(error, POST)
    assert type(found) is expected
    assert ("renew the client certificate" in str(found)) == (expected is NotBegun)
