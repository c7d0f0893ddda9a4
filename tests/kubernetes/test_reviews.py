"""Conversions keep what a class or a version does not have, whatever else is in an object."""

from __future__ import annotations

import json
from typing import Any

import pytest

import headway
from headway import field, kubernetes
from headway.base import finished
from headway.events import ConversionFailed
from headway.kubernetes._reviews import NEWER, Reviews
from headway.kubernetes._webhook_config import configuration, place_of, served_versions
from tests.kubernetes.test_webhooks import NewSite, OldSite, Program

GROUP = "reviews.example.org"


def fail(*what: object) -> None:
    raise AssertionError(what)


def reviews(report: Any = fail) -> Reviews:
    return Reviews(Program(GROUP).app.registry, fail, report)


def answer(of: Reviews, wanted: str, *objects: dict[str, Any]) -> dict[str, Any]:
    asked = {"uid": "1", "desiredAPIVersion": f"{GROUP}/{wanted}", "objects": objects}
    review = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": asked}
    made: dict[str, Any] = json.loads(finished(of.answered("/convert", json.dumps(review).encode())))
    return dict(made["response"])


def converted(object: dict[str, Any], wanted: str) -> dict[str, Any]:
    (made,) = answer(reviews(), wanted, object)["convertedObjects"]
    return dict(made)


def site(version: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    meta = {"name": "a", "uid": "1", **metadata}
    return {"apiVersion": f"{GROUP}/{version}", "kind": "Site", "metadata": meta, "spec": spec}


def test_cluster_need_not_serve_a_version_that_the_program_declares_as_gone() -> None:
    program = Program(GROUP)
    assert served_versions(program.app.registry, program.new.kind) == {"v1", "v2"}
    app = headway.App("gone")
    old = kubernetes.resource(app, GROUP, "v1", "Site", OldSite, stored=False, served=False)
    kubernetes.resource(app, GROUP, "v2", "Site", NewSite)
    assert served_versions(app.registry, old.kind) == {"v2"}


def test_fields_that_no_class_knows_survive() -> None:
    ports = [{"name": "x"}, {"name": "y", "later": {"deep": [1]}}]
    old = site(
        "v1", {"image": "web:1", "replicas": 0, "ports": ports, "env": {"k": {"number": 1, "later": 2}}, "new": {}}
    )
    new = converted(old, "v2")
    assert new["spec"] == {"image": "web:1", "ports": ports, "env": {"k": {"number": 1, "later": 2}}, "new": {}}
    assert new["metadata"] == old["metadata"]
    old["spec"].pop("replicas")
    assert converted(new, "v1") == old


@pytest.mark.parametrize(
    ("change", "spec"),
    [
        ({}, {"image": "web:1", "count": 1, "slot": "blue", "later": "z"}),
        ({"replicas": 2}, {"image": "web:1", "count": 2, "slot": "blue", "later": "z"}),
        (
            {"ports": [{"name": "x"}]},
            {"image": "web:1", "count": 1, "slot": "blue", "ports": [{"name": "x"}], "later": "z"},
        ),
        ({"later": "y"}, {"image": "web:1", "count": 1, "slot": "blue", "later": "y"}),
    ],
)
def test_write_in_the_older_version_keeps_the_fields_of_the_newer_one(
    change: dict[str, Any], spec: dict[str, Any]
) -> None:
    new = site("v2", {"image": "web:1", "count": 1, "slot": "blue", "later": "z"}, annotations={"note": "n"})
    old = converted(new, "v1")
    assert old["spec"] == {"image": "web:1", "replicas": 1, "later": "z"}
    assert set(old["metadata"]["annotations"]) == {"note", NEWER}
    old["spec"] |= change
    again = converted(old, "v2")
    assert again["spec"] == spec
    assert again["metadata"]["annotations"] == {"note": "n"}


FORGED = (
    *("{", "[]", "1", '{"version": "v9"}', '{"version": "v2", "fields": {"spec": 1}}'),
    '{"version": "v2", "fields": {"spec": {"image": "broken"}}}',
    '{"version": "v1", "fields": {"spec": {"replicas": 7}}}',
)


@pytest.mark.parametrize("text", FORGED)
def test_annotation_that_somebody_has_made_stops_nothing(text: str) -> None:
    object = site("v1", {"replicas": 2}, annotations={NEWER: text, "other": "kept"})
    (made,) = answer(reviews(lambda _: None), "v2", object)["convertedObjects"]
    assert made["spec"] == {"count": 2}
    assert made["metadata"]["annotations"] == {"other": "kept"}


def test_annotation_of_an_older_version_takes_nothing_away() -> None:
    forged = '{"version": "v1", "fields": {"spec": {"replicas": 1}}}'
    old = converted(site("v2", {"count": 2, "slot": "blue"}, annotations={NEWER: forged}), "v1")
    assert old["spec"] == {"replicas": 2}
    assert converted(old, "v2")["spec"] == {"count": 2, "slot": "blue"}


def test_type_whose_only_hook_is_for_its_secrets_has_no_webhook() -> None:
    @headway.message(name="reviews.example.org.Key")
    class Key:
        text: str = field(1, secret=True)

    app, place = headway.App("keys"), place_of("https://a.example.org")
    kubernetes.resource(app, GROUP, "v1", "Key", Key)
    assert configuration(app.registry, "validate", "n", place, "Fail", "")["webhooks"] == []
    checked = headway.App("keys")
    kubernetes.resource(checked, GROUP, "v1", "Key", Key, hooks=headway.Hooks(mutate=lambda _: None))
    (made,) = configuration(checked.registry, "validate", "n", place, "Fail", "")["webhooks"]
    assert made["clientConfig"] == {"url": "https://a.example.org/validate", "caBundle": ""}


def test_failed_conversion_is_reported_once_for_each_version_of_an_object() -> None:
    found: list[ConversionFailed] = []
    of = reviews(found.append)
    for version in ("1", "1", "2"):
        failed = answer(of, "v2", site("v1", {"image": "broken"}, resourceVersion=version))["result"]
        assert failed["status"] == "Failure"
        assert "this image cannot be converted" in failed["message"]
    assert len(found) == 2


def test_annotation_has_no_more_than_the_older_version_lacks() -> None:
    old = converted(site("v2", {"image": "x" * 300_000, "count": 1, "slot": "blue"}), "v1")
    assert json.loads(old["metadata"]["annotations"][NEWER])["fields"] == {"spec": {"slot": "blue"}}
    old["spec"]["image"] = "web:1"
    assert converted(old, "v2")["spec"] == {"image": "web:1", "count": 1, "slot": "blue"}


def test_object_whose_newer_fields_have_no_place_can_be_read_in_the_older_version() -> None:
    old = converted(site("v2", {"count": 1, "slot": "x" * 300_000}), "v1")
    assert old["spec"] == {"replicas": 1}
    assert old["metadata"]["annotations"] == {NEWER: "too large"}
    # Its slot would be lost.
    assert "write it as" in answer(reviews(lambda _: None), "v2", old)["result"]["message"]
    old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    (made,) = answer(reviews(lambda _: None), "v2", old)["convertedObjects"]
    assert made["spec"] == {"count": 1}


def test_object_whose_newer_fields_have_no_place_cannot_be_stored_in_the_older_version() -> None:
    program = Program(GROUP, stored="v1")
    of = Reviews(program.app.registry, fail, lambda _: None)
    refused = answer(of, "v1", site("v2", {"count": 1, "slot": "x" * 300_000}))
    assert "too large" in refused["result"]["message"]
    # Anybody can write this, which must stop no list.
    (made,) = answer(of, "v2", site("v1", {"replicas": 1}, annotations={NEWER: "too large"}))["convertedObjects"]
    assert made["spec"] == {"count": 1}


def test_converter_that_refuses_what_was_merged_stops_nothing() -> None:
    new = site("v2", {"image": "web:1", "count": 10, "slot": "at most 5"})
    old = converted({**new, "spec": {**new["spec"], "count": 5}}, "v1")
    old["spec"]["replicas"] = 6
    found: list[ConversionFailed] = []
    (made,) = answer(reviews(found.append), "v2", old)["convertedObjects"]
    assert made["spec"] == {"image": "web:1", "count": 6}
    assert "is dropped" in str(found[0].error)


@pytest.mark.parametrize("written", ["http", "tcp"])
def test_write_of_another_arm_keeps_the_other_fields_of_the_newer_version(written: str) -> None:
    @headway.message(name="reviews.example.org.OldProbe")
    class OldProbe:
        http: str | None = field(1, oneof="way")
        tcp: str | None = field(2, oneof="way")

    @headway.message(name="reviews.example.org.NewProbe")
    class NewProbe:
        http: str | None = field(1, oneof="way")
        tcp: str | None = field(2, oneof="way")
        grpc: str | None = field(3, oneof="way")
        slot: str = field(4)

    def up(old: OldProbe) -> NewProbe:
        return NewProbe(http=old.http, tcp=old.tcp)

    def down(new: NewProbe) -> OldProbe:
        return OldProbe(http=new.http if new.grpc is None else "/", tcp=new.tcp)

    app, object = headway.App("probes"), {"kind": "Probe", "metadata": {"name": "a"}}
    old = kubernetes.resource(app, GROUP, "v1", "Probe", OldProbe, stored=False)
    app.converter(old, kubernetes.resource(app, GROUP, "v2", "Probe", NewProbe), up=up, down=down)
    of = Reviews(app.registry, fail, fail)
    (shown,) = answer(of, "v1", {**object, "apiVersion": f"{GROUP}/v2", "grpc": "x", "slot": "b"})["convertedObjects"]
    assert shown.pop("http") == "/"
    (made,) = answer(of, "v2", {**shown, written: "/"})["convertedObjects"]
    assert {key: made.get(key) for key in ("http", "tcp", "grpc", "slot")} == {
        "http": None,
        "tcp": "/" if written == "tcp" else None,
        "grpc": "x" if written == "http" else None,
        "slot": "b",
    }


def test_converter_may_need_what_both_versions_have() -> None:
    @headway.message(name="reviews.example.org.OldPeer")
    class OldPeer:
        host: str = field(1)
        port: str = field(2)

    @headway.message(name="reviews.example.org.NewPeer")
    class NewPeer:
        address: str = field(1)
        slot: str = field(2)

    def down(new: NewPeer) -> OldPeer:
        host, port = new.address.split(":")
        return OldPeer(host=host, port=port)

    app, object = headway.App("peers"), {"kind": "Peer", "metadata": {"name": "a"}}
    old = kubernetes.resource(app, GROUP, "v1", "Peer", OldPeer, stored=False)
    new = kubernetes.resource(app, GROUP, "v2", "Peer", NewPeer)
    app.converter(old, new, up=lambda old: NewPeer(address=f"{old.host}:{old.port}"), down=down)
    of = Reviews(app.registry, fail, fail)
    asked = {**object, "apiVersion": f"{GROUP}/v2", "address": "a:1", "slot": "b"}
    (shown,) = answer(of, "v1", asked)["convertedObjects"]
    (made,) = answer(of, "v2", {**shown, "port": "2"})["convertedObjects"]
    assert (made["address"], made["slot"]) == ("a:2", "b")


def test_failed_conversions_that_anybody_asks_for_fill_neither_memory_nor_log() -> None:
    found: list[ConversionFailed] = []
    of = reviews(found.append)
    for number in range(200):
        answer(of, "v2", site("v1", {"image": "broken"}, name=f"{number}" + "x" * 10_000))
    assert len(found) == 100
    assert len(found[0].id.name) == 253
    of._forgotten_at = 0.0
    answer(of, "v2", site("v1", {"image": "broken"}))
    assert len(found) == 101
