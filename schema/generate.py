"""Generate the messages of schema/ into a folder: ``python schema/generate.py FOLDER``."""

import shutil
import subprocess
import sys
from pathlib import Path

SCHEMA = Path(__file__).parent


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
        "--python_betterproto2_opt=server_generation=async",
        "--python_betterproto2_opt=client_generation=async",
        *sources,
    ]
    # The generator's plugin is a script beside this interpreter.
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\nthe schema could not be generated (see above)")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
