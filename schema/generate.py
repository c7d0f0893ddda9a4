"""Generate the messages of schema/ into a folder: ``python schema/generate.py FOLDER``."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SCHEMA = Path(__file__).parent
# The resource service is offered under Consul's name too: reflection describes it there with the same messages.
OURS, CONSULS = "headway.resource.v1", "hashicorp.consul.resource"


def main(target: Path) -> None:
    """Replace what is in ``target`` by freshly generated code."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    sources = sorted(str(path.relative_to(SCHEMA)) for path in SCHEMA.rglob("*.proto"))
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"--proto_path={SCHEMA}",
        f"--python_betterproto2_out={target}",
        "--python_betterproto2_opt=server_generation=none",
        "--python_betterproto2_opt=client_generation=none",
        *sources,
    ]
    run(command)
    with tempfile.TemporaryDirectory() as made:
        text = (SCHEMA / "headway/resource/v1/resource.proto").read_text()
        alias = Path(made) / "hashicorp/consul/resource.proto"
        alias.parent.mkdir(parents=True)
        alias.write_text(text.replace(f"package {OURS};", f"package {CONSULS};"))
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={SCHEMA}", f"--proto_path={made}"]
        command += ["--include_imports", f"--descriptor_set_out={target / 'descriptors.bin'}"]
        # etcd's are not offered by any server of ours, so that reflection has nothing to say of them.
        offered = [each for each in sources if not each.startswith("etcd/")]
        run([*command, *offered, "hashicorp/consul/resource.proto"])


def run(command: list[str]) -> None:
    """Run protoc; end with what it says when it fails."""
    # The generator's plugin is a script beside this interpreter.
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\nthe schema could not be generated (see above)")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
