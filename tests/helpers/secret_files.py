"""Key and token files as Headway requires them: accessible to their owner only, whatever the umask."""

import os
from pathlib import Path


def write_secret(path: Path, content: bytes | str, mode: int = 0o600) -> Path:
    """Write a secret to a file of this mode."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    os.chmod(path, mode)
    return path
