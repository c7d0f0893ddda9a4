"""Generate the messages of schema/ into a folder: ``python schema/generate.py FOLDER``."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SCHEMA = Path(__file__).parent
# Served under a second name, which reflection describes with the same messages: (file, name, file and name of the
# second).
ALIASES = (
    (
        "headway/resource/v1/resource.proto",
        "headway.resource.v1",
        "hashicorp/consul/resource.proto",
        "hashicorp.consul.resource",
    ),
    (
        "grpc/reflection/v1/reflection.proto",
        "grpc.reflection.v1",
        "grpc/reflection/v1alpha/reflection.proto",
        "grpc.reflection.v1alpha",
    ),
)
# Payloads may hold these, and a tool that reads a payload asks for the files that it imports.
WELL_KNOWN = ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")


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
        # The messages of gRPC's own services are declared where they are served (`rpc/_health.py`).
        *(each for each in sources if not each.startswith("grpc/")),
    ]
    run(command)
    import_later(target / "google/protobuf/__init__.py")
    for generated in target.rglob("__init__.py"):
        declare_fast(generated)
    shutil.copy(SCHEMA / "message_pool.py", target)
    with tempfile.TemporaryDirectory() as made:
        for file, name, second_file, second_name in ALIASES:
            alias = Path(made) / second_file
            alias.parent.mkdir(parents=True, exist_ok=True)
            alias.write_text((SCHEMA / file).read_text().replace(f"package {name};", f"package {second_name};"))
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={SCHEMA}", f"--proto_path={made}"]
        command += ["--include_imports", f"--descriptor_set_out={target / 'descriptors.bin'}"]
        # etcd's are not offered by any server of ours, so that reflection has nothing to say of them.
        offered = [each for each in sources if not each.startswith("etcd/")]
        well_known = [f"google/protobuf/{each}.proto" for each in WELL_KNOWN]
        run([*command, *offered, *(second_file for *_, second_file, _ in ALIASES), *well_known])


def import_later(generated: Path) -> None:
    """Import dateutil where a time in JSON is parsed, and not with Headway: it takes a 20th of that time."""
    text = generated.read_text()
    first, call = "import dateutil.parser\n", "            dt = dateutil.parser.isoparse("
    if text.count(first) != 1 or text.count(call) != 1:
        sys.exit(f"{generated} uses dateutil in a way that schema/generate.py does not know")
    text = text.replace(first, "").replace(call, f"            import dateutil.parser\n\n{call}")
    generated.write_text(text)


def declare_fast(generated: Path) -> None:
    """Use the decorator of message_pool.py, because messages took most of the time of importing Headway."""
    text = generated.read_text()
    if "@dataclass(" in text:
        imported = "message_pool import default_message_pool\n"
        if text.count(imported) != 1 or text.count("from dataclasses import dataclass\n") != 1:
            sys.exit(f"{generated} declares messages in a way that schema/generate.py does not know")
        text = text.replace("from dataclasses import dataclass\n", "")
        generated.write_text(text.replace(imported, "message_pool import dataclass, default_message_pool\n"))


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
