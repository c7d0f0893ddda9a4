"""Make a key file: ``python -m mesh.certificates FILE``."""

from __future__ import annotations

import os
import sys

from cryptography.fernet import Fernet


def main(arguments: list[str]) -> int:
    """Write a new key into a new file that only its owner may read."""
    if len(arguments) != 1:
        print("usage: python -m mesh.certificates FILE", file=sys.stderr)
        return 2
    try:
        descriptor = os.open(arguments[0], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        print(f"the key file cannot be made: {error}", file=sys.stderr)
        return 1
    with os.fdopen(descriptor, "wb") as file:
        file.write(Fernet.generate_key() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
