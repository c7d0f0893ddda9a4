"""The messages of xDS are those of the published .proto files, as far as fields.txt names them."""

from __future__ import annotations

import filecmp
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "examples/mesh/mesh/xds"


def compared(left: Path, right: Path, pattern: str) -> list[str]:
    """Return the files that differ or are in one folder only."""
    names = {str(each.relative_to(folder)) for folder in (left, right) for each in folder.rglob(pattern)}
    _, different, missing = filecmp.cmpfiles(left, right, sorted(names), shallow=False)
    return different + missing


def test_code_is_what_the_proto_files_give(tmp_path: Path) -> None:
    """`make schema` makes it again."""
    made = tmp_path / "made"
    subprocess.run([sys.executable, str(PACKAGE / "schema/generate.py"), str(made)], check=True, timeout=50)
    assert compared(PACKAGE / "generated", made, "*.py") == []


def test_proto_files_are_part_of_the_published_ones(tmp_path: Path) -> None:
    """Names, numbers and types are Envoy's."""
    pytest.importorskip("envoy.config.core.v3.base_pb2", reason="no xds-protos: run `make setup`")
    subprocess.run([sys.executable, str(PACKAGE / "schema/trim.py"), str(tmp_path)], check=True, timeout=50)
    assert compared(PACKAGE / "schema", tmp_path, "*.proto") == []
