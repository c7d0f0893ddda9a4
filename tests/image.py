"""Run the steps of the Dockerfile, and the image that they make, where no Docker is at hand.

The base image is replaced by this machine: an overlay of its file system, in a mount namespace of its own, with a fresh
environment for Python. Every step of the Dockerfile runs there, as it stands. Then the image serves the README's app in
a network namespace of its own, a client with a token uses it, and it is stopped and started again.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PYTHON = "/opt/python"
"""The environment that stands for the Python of the base image."""

# os.unshare, which has a name for the first, is new in Python 3.12.
CLONE_NEWNET, SIOCSIFFLAGS = 0x40000000, 0x8914

ACCESS = """\
policies:
  - name: operators
    rules:
      - verbs: ["*"]
        type: "*"
        partition: "*"
        namespace: "*"
"""


@dataclass
class Stage:
    """A stage of the Dockerfile, and what its steps have set."""

    root: Path
    folder: str = "/"
    user: str = "root"
    environment: dict[str, str] = field(default_factory=dict)
    volumes: list[str] = field(default_factory=list)
    commands: dict[str, list[str]] = field(default_factory=dict)

    def argv(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs another one in this stage, as its user."""
        given = {"PATH": f"{PYTHON}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", **self.environment}
        pairs = [f"{name}={value}" for name, value in given.items()]
        outside = ["--unset=PYTHONPATH", "--unset=VIRTUAL_ENV"]
        enter = f"cd {shlex.quote(self.folder)} && exec " + shlex.join(["env", *outside, *pairs, *command])
        if self.user == "root":
            return ["chroot", str(self.root), "sh", "-c", enter]
        user = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--init-groups", "--no-new-privs"]
        return ["chroot", str(self.root), *user, "sh", "-c", enter]


def instructions(text: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile with their arguments."""
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def try_image() -> str:
    """Run the Dockerfile and its image. Return a sentence about the result. Raises an exception for a fault."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return "the Dockerfile was not tried: its steps need root, for namespaces of their own"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        return "the Dockerfile was not tried: this machine allows no namespaces"
    subprocess.run(["unshare", "--mount", sys.executable, "-m", "tests.image"], cwd=ROOT, check=True)
    return "each step of the Dockerfile runs, and its image serves the README's app"


def build(place: Path) -> Stage:
    """Run the steps of the Dockerfile. Return the last stage."""
    stages: dict[str, Stage] = {}
    for word, given in instructions((ROOT / "Dockerfile").read_text()):
        if word == "FROM":
            name = given.partition(" AS ")[2] or "image"
            stage = stages[name] = Stage(overlay(place / name))
        elif word == "WORKDIR":
            stage.folder = given
            (stage.root / given.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "COPY":
            copy(stages, stage, given.split())
        elif word == "RUN":
            subprocess.run(stage.argv(["sh", "-c", given]), check=True)
        elif word == "ENV":
            name, _, value = given.partition("=")
            stage.environment[name] = value
        elif word == "USER":
            stage.user = given
        elif word == "VOLUME":
            stage.volumes.append(given)
        elif word in ("ENTRYPOINT", "CMD", "HEALTHCHECK"):
            stage.commands[word] = json.loads(given.removeprefix("CMD "))
        elif word != "EXPOSE":
            raise ValueError(f"{word} is not an instruction that this module knows")
    return stage


def overlay(place: Path) -> Path:
    """Return a disposable copy of this machine's file system, with a Python environment without any package."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
    for name in ("upper", "work", "root"):
        (place / name).mkdir()
    options = f"lowerdir=/,upperdir={place}/upper,workdir={place}/work"
    root = place / "root"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, root], check=True)
    for name in ("dev", "proc"):
        subprocess.run(["mount", "--rbind", f"/{name}", root / name], check=True)
    # A Python in root's home must be found by the image's user.
    os.chmod(root / "root", 0o711)
    python = str(Path(sys.executable).resolve())
    subprocess.run(["chroot", root, python, "-m", "venv", PYTHON], check=True)
    return root


def copy(stages: dict[str, Stage], stage: Stage, arguments: list[str]) -> None:
    """Run a COPY, from the folder of the Dockerfile or from another stage."""
    source, target = arguments[-2:]
    to = stage.root / os.path.normpath(os.path.join(stage.folder, target)).lstrip("/")
    if arguments[0].startswith("--from="):
        shutil.copytree(stages[arguments[0].removeprefix("--from=")].root / source.lstrip("/"), to)
        return
    assert source == ".", f"COPY {source}: only the whole folder is known here"
    for name in sent():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, to / name)


def sent() -> list[str]:
    """Return the names that .dockerignore sends to the builder: those after the exclusion of everything."""
    first, *rest = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert first == "*"
    return [line.removeprefix("!") for line in rest if line.startswith("!")]


def try_server(image: Stage) -> None:
    """Serve the README's app by the image's own command, and use it as the guide says."""
    [program, _] = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (image.root / "app/app.py").write_text(program)
    access = image.root / "etc/headway/access.yaml"
    access.parent.mkdir()
    access.write_text(ACCESS)
    os.chmod(access, 0o600)
    for path in (access, access.parent):
        os.chown(path, 10001, 10001)
    assert headway(image, "--version").startswith("headway ")
    token = headway(image, "token", "new", "operators", "--into", "/etc/headway/access.yaml").strip()
    manifest = json.dumps({"type": "staff.v1.Team", "name": "core", "data": {"members": ["ada"]}})
    for known in (False, True):
        server = start(image)
        try:
            subprocess.run(image.argv(image.commands["HEALTHCHECK"]), check=True, timeout=60)
            assert ("core" in headway(image, "list", "team", token=token)) == known
            assert headway(image, "apply", "-f", "-", token=token, stdin=manifest) == (
                f"Team core {'unchanged' if known else 'created'}\n"
            )
            users = re.findall(r"^Uid:\t(\d+)", Path(f"/proc/{server.pid}/status").read_text(), re.MULTILINE)
            assert users == ["10001"]
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 0, f"the server ended with {server.returncode}"
    assert {path.stat().st_uid for path in (image.root / "data").iterdir()} == {10001}
    assert subprocess.run(image.argv(["test", "-w", "/usr"]), check=False).returncode


def start(image: Stage) -> subprocess.Popen[str]:
    """Start the image's command, and return it when it listens."""
    command = image.argv(image.commands["ENTRYPOINT"] + image.commands["CMD"])
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    lines = [server.stdout.readline(), server.stdout.readline()]
    assert lines[0] == "listening on 0.0.0.0:7070\n", lines
    assert lines[1].startswith("metrics and health at http://127.0.0.1:9090/"), lines
    return server


def headway(image: Stage, *arguments: str, token: str = "", stdin: str = "") -> str:
    """Run the command in the image and return its output."""
    environment: dict[str, Any] = {**os.environ, "HEADWAY_TOKEN": token} if token else {**os.environ}
    command = image.argv([*image.commands["ENTRYPOINT"], *arguments])
    done = subprocess.run(
        command, env=environment, input=stdin, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"headway {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout


def leave_network() -> None:
    """Move this process to a network of its own that has only loopback."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWNET)")
    name, flags = b"lo", 1 | 64  # IFF_UP, IFF_RUNNING
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        fcntl.ioctl(opened, SIOCSIFFLAGS, struct.pack("16sH14x", name, flags))


def main() -> None:
    """Build and try the image. This process already has a mount namespace of its own."""
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    with tempfile.TemporaryDirectory() as place:
        try:
            image = build(Path(place))
            # From here on without the machine's network: the image listens on every address.
            leave_network()
            try_server(image)
        finally:
            subprocess.run(["umount", "--recursive", "--lazy", *Path(place).iterdir()], check=True)


if __name__ == "__main__":
    main()
