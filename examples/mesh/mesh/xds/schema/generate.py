"""Generate the messages of xDS from the .proto files beside this one: ``python generate.py FOLDER``."""

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
HEADWAY = Path(__file__).parents[5] / "schema"


def main(target: Path) -> None:
    """Replace what is in ``target`` by freshly generated code."""
    # Headway's own messages are generated in the same way. The plugin that makes them has no other entry point.
    sys.path.insert(0, str(HEADWAY))
    from generate import declare_fast, run

    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    sources = sorted(str(path.relative_to(HERE)) for path in HERE.rglob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={HERE}"]
    run([*command, f"--python_betterproto2_out={target}", *sources])
    for generated in target.rglob("__init__.py"):
        declare_fast(generated)
    shutil.copy(HEADWAY / "message_pool.py", target)
    (target / "py.typed").touch()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
