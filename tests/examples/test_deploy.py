"""The files that run a server in containers fit the image, and the server that they start can be used."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from tests.cli.conftest import HEADWAY, ROOT, starting

DOCKERFILE = (ROOT / "Dockerfile").read_text()
DEPLOY = ROOT / "examples/deploy"
POLICY = 'policies: [{name: operators, rules: [{verbs: ["*"], type: "*", partition: "*", namespace: "*"}]}]\n'
APP = 'import headway\napp = headway.App("staff")\n'


def kubernetes() -> dict[str, Any]:
    """Return the StatefulSet."""
    found = {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}
    assert set(found) == {"StatefulSet", "Service"}
    return dict(found["StatefulSet"]["spec"])


def mounted(folder: Path) -> list[str]:
    """Create what the StatefulSet mounts within a folder. Return its arguments, with the paths there."""
    (container,) = kubernetes()["template"]["spec"]["containers"]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    for mount in mounts:
        (folder / mount.lstrip("/")).mkdir(parents=True)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(folder / "etc/headway/tls/tls.crt")
    certificate.private_key_pem.write_to_path(folder / "etc/headway/tls/tls.key")
    (folder / "etc/headway/access/access.yaml").write_text(POLICY)
    # As root's, with a group: what `defaultMode` and `fsGroup` make of a secret.
    for path in ("access/access.yaml", "tls/tls.key"):
        (folder / "etc/headway" / path).chmod(0o440 if os.geteuid() == 0 else 0o400)
    return [re.sub(f"({'|'.join(mounts)})(?=/)", rf"{folder}\1", each) for each in container["args"]]


@pytest.mark.wide
def test_server_of_the_stateful_set_is_used_with_tls_and_a_token(tmp_path: Path) -> None:
    """Its arguments run as they stand, but for the folders and the ports."""
    arguments = [re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", each) for each in mounted(tmp_path)]
    access = tmp_path / "etc/headway/access/access.yaml"
    (tmp_path / "app.py").write_text(APP)
    token = tmp_path / "token"
    token.touch(mode=0o600)
    with starting(tmp_path) as start:
        access.chmod(0o600)
        token.write_text(start("token", "new", "operators", "--into", str(access)).communicate(timeout=30)[0])
        access.chmod(0o440 if os.geteuid() == 0 else 0o400)
        server = start(*arguments)
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["event"].removeprefix("listening on ")
        asked = [*HEADWAY, "--tls-authority", str(tmp_path / "ca.pem"), "--token-file", str(token), "types"]
        shown = subprocess.run(
            asked, env={**os.environ, "PYTHONPATH": str(ROOT / "engine"), "HEADWAY_SERVER": address},
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert "tenancy.v1.Namespace" in shown.stdout, shown.stderr
        assert (tmp_path / "data/headway.db").exists()
        server.terminate()
        assert server.wait(30) == 0


def test_stateful_set_fits_the_image_and_itself() -> None:
    pod = kubernetes()["template"]["spec"]
    (container,) = pod["containers"]
    assert f"--uid {pod['securityContext']['runAsUser']} " in DOCKERFILE
    assert kubernetes()["replicas"] == 1
    volumes = {each["name"] for each in pod["volumes"]}
    volumes |= {each["metadata"]["name"] for each in kubernetes()["volumeClaimTemplates"]}
    assert {each["name"] for each in container["volumeMounts"]} == volumes
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    named = [port for probe in ("startupProbe", "livenessProbe") for port in (container[probe]["httpGet"]["port"],)]
    assert {*named, container["readinessProbe"]["tcpSocket"]["port"]} == set(ports)
    served = {each for each in container["args"] if "0.0.0.0" in each}
    assert served == {f"--listen=0.0.0.0:{ports['grpc']}", f"--metrics=0.0.0.0:{ports['metrics']}"}
    assert int(container["args"][-1].removeprefix("--hard-exit=")) < pod["terminationGracePeriodSeconds"]


@pytest.mark.wide
def test_addresses_of_the_stateful_set_are_accepted(tmp_path: Path) -> None:
    """There is no module of the app, which is looked for once the options are accepted."""
    refused = subprocess.run(
        [*HEADWAY, *mounted(tmp_path)], env={**os.environ, "PYTHONPATH": str(ROOT / "engine")}, cwd=tmp_path,
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert "app:app: module 'app' not found" in refused.stderr


def test_compose_file_mounts_what_the_image_uses() -> None:
    server = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["server"]
    targets = [volume.split(":")[1] for volume in server["volumes"]]
    assert targets == ["/data", "/etc/headway/access.yaml"]
    for used in ("VOLUME /data\n", '"/etc/headway/access.yaml"', "EXPOSE 7070\n"):
        assert used in DOCKERFILE
    assert server["ports"] == ["127.0.0.1:7070:7070"]
