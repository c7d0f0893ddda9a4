"""What `make bench-kube-peers` counts is what its rows are named for, and the documents have its rows."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

from benchmarks.kube_peers import _faults
from benchmarks.kube_peers.__main__ import cell, medians
from benchmarks.kube_peers._cluster import copy_of, read_audit
from benchmarks.kube_peers._numbers import counted
from benchmarks.kube_peers._operators import lines_of, sides
from benchmarks.kube_peers._proxy import Asked
from tests.helpers.etcd_server import ROOT


def _event(verb: str, resource: str, stage: str = "ResponseComplete", subresource: str = "") -> bytes:
    of = {"resource": resource, "subresource": subresource}
    event = {"verb": verb, "objectRef": of, "stage": stage, "responseStatus": {"code": 200}}
    return json.dumps({**event, "requestReceivedTimestamp": "now"}).encode() + b"\n"


def test_audit_counts_each_call_once_and_leaves_leases_out() -> None:
    log = b"".join(
        [
            _event("watch", "deployments", "ResponseStarted"),
            _event("watch", "deployments"),
            _event("patch", "websites", subresource="status"),
            _event("update", "leases"),
            _event("list", "deployments"),
            _event("create", "events"),
        ]
    )
    calls = list(read_audit(log + b'{"verb": "cre'))
    assert [(each.verb, each.resource) for each in calls] == [
        ("watch", "deployments"),
        ("patch", "websites/status"),
        ("list", "deployments"),
        ("create", "events"),
    ]
    assert counted(calls, "it", 2) == {"it: writes": 1, "it: reads": 1, "it: reconciles": 2}


def test_copy_has_another_name_and_the_same_other_uid_for_the_same_uid() -> None:
    one, other = (f"{digit * 8}-{digit * 4}-{digit * 4}-{digit * 4}-{digit * 12}".encode() for digit in "ab")
    uids: dict[bytes, bytes] = {}
    first = copy_of(b"site-00000 " + one + b" " + other, b"site-00000", b"site-00007", uids)
    second = copy_of(b"owner " + one, b"site-00000", b"site-00007", uids)
    name, new_one, new_other = first.split(b" ")
    assert name == b"site-00007"
    assert second == b"owner " + new_one
    assert len({one, other, new_one, new_other}) == 4
    assert len(new_one) == len(one)


def test_lines_are_without_blank_lines_comments_and_docstrings(tmp_path: Path) -> None:
    python = tmp_path / "a.py"
    text = '"""Doc.\n\nMore.\n"""\n\nX = """a\nb"""  # kept\n# not\n'
    text += 'def f():\n    "Doc."\n    return {\n        1: "a"\n    }\n'
    python.write_text(text)
    assert lines_of([python]) == 6
    go = tmp_path / "a.go"
    go.write_text("// Package a.\npackage a\n\nfunc f() {\n\t// Why.\n\tg() // kept\n}\n")
    assert lines_of([python, go]) == 6 + 4


def test_cells_have_no_digits_that_say_nothing() -> None:
    assert cell([9.0, 13.0]) == "9, 13"
    assert cell([1234.5]) == "1,234"
    assert cell([3.14159, inf]) == "3.1, not in 60"
    assert medians([{"a": 1.0}, {"a": 9.0}, {"a": 2.0}]) == {"a": 2.0}


def test_writes_of_leases_and_events_are_no_writes_of_the_operator() -> None:
    base = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    paths = [base, f"{base}/a", "/api/v1/namespaces/web/events", "/apis/apps/v1/namespaces/web/deployments"]
    assert [Asked("POST", each, 201, 0.0).is_write for each in paths] == [False, False, False, True]
    assert not Asked("GET", paths[-1], 200, 0.0).is_write


def test_every_operator_has_its_files() -> None:
    for side in sides(Path("go"), Path("python")):
        assert lines_of(side.files) > 50, side.name


def test_page_has_every_fault() -> None:
    """The table of the page has the rows that the command prints, in this order, and no others."""
    table = (ROOT / "docs/coming-from.md").read_text().partition("\n| fault |")[2].partition("\n\n")[0]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:]]
    assert rows == list(_faults.FAULTS)
