"""The real Kubernetes API server that the tests use: CI does not pass without it, and tests can break it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.helpers.kube_server import BOB, KubeServer, need_kube, running_kube


def test_missing_api_server_skips_tests_but_fails_them_in_ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "kube-apiserver"
    monkeypatch.delenv("HEADWAY_NEEDS_KUBE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="install Go and run `make kube`"):
        need_kube(missing)
    monkeypatch.setenv("HEADWAY_NEEDS_KUBE", "1")
    with pytest.raises(pytest.fail.Exception, match="no Kubernetes API server"):
        need_kube(missing)


def test_users_have_the_rights_of_their_tokens(kube: KubeServer, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    with kube.client() as admin, kube.client(BOB) as bob:
        assert admin.get(path).json()["items"] == []
        assert bob.get(path).status_code == 403


@pytest.mark.timeout(180)
@pytest.mark.kube
def test_server_is_killed_frozen_restarted_compacted_and_restored(tmp_path: Path) -> None:
    with running_kube(tmp_path / "kube", ["--feature-gates=WatchList=false"]) as kube:
        path = f"/api/v1/namespaces/{kube.new_namespace()}/configmaps"
        create(kube, path, "before")
        kube.save_store(tmp_path / "saved")
        create(kube, path, "after")
        with kube.second() as other:
            kube.pause()
            assert not kube.healthy(0.5)
            assert names(other, path) == ["after", "before"]
            kube.resume()
        assert kube.healthy()
        assert kube.compact() > 1
        kube.kill()
        kube.start_ready()
        assert names(kube, path) == ["after", "before"]
        kube.restore_store(tmp_path / "saved")
        assert names(kube, path) == ["before"]
        initial = {"watch": "true", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        with kube.client() as client:
            assert client.get(path, params={**initial, "allowWatchBookmarks": "true"}).status_code == 422
        kube.terminate()
        while kube.healthy():
            pass


def create(kube: KubeServer, path: str, name: str) -> None:
    with kube.client() as client:
        client.post(path, json={"metadata": {"name": name}}).raise_for_status()


def names(kube: KubeServer, path: str) -> list[str]:
    with kube.client() as client:
        answer: httpx.Response = client.get(path)
        found: list[dict[str, Any]] = answer.json()["items"]
        return [each["metadata"]["name"] for each in found]
