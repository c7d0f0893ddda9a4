"""Key and token files that only their owner can access, as Headway requires, with any umask."""

import os
from pathlib import Path


def write_secret(path: Path, content: bytes | str, mode: int = 0o600) -> Path:
    """Write a secret to a file of this mode."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    os.chmod(path, mode)
    return path
