"""Every problem of a document, each with its exact place and message."""

import pytest

from headway.manifest import ManifestError, load
from tests.manifest.messages import REGISTRY

INT32 = "write a whole number from -2147483648 to 2147483647 (int32)"
UINT32 = "write a whole number from 0 to 4294967295 (uint32)"
NAME = "use 1 to 63 lower-case letters, digits and hyphens, with a letter or digit at both ends"
MOMENT = "write a timestamp with its zone, such as '2024-02-29T12:30:00Z'"
LEAVE = "leave it out"


def problems_of(text: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        load(text, REGISTRY, source="f")
    return [str(problem) for problem in caught.value.problems]


def only_problem_of(text: str) -> str:
    [problem] = problems_of(text)
    return problem


# Each text is the data of an App, on line 3 from column 8.
VALUES = {
    "{replcas: 3}": "3:8: data.replcas: App has no field 'replcas'; did you mean 'replicas'?",
    "{limits: {cpus: 3}}": "3:17: data.limits.cpus: Limits has no field 'cpus'; did you mean 'cpu'?",
    "{7: 3}": "3:8: data.7: App has no field 7 (a whole number); known: command, environment, grace_period, icon, "
    "limits, note, paused, policy, ports, replicas, since",
    "{replicas: three}": f"3:18: data.replicas: 'three' is text; {INT32}",
    "{replicas: '3'}": f"3:18: data.replicas: '3' is text; {INT32}: remove the quotes",
    "{replicas: yes}": f"3:18: data.replicas: yes is read as a boolean; {INT32}",
    "{replicas: 1.0}": f"3:18: data.replicas: 1.0 is read as a number; {INT32}",
    "{replicas: 2147483648}": f"3:18: data.replicas: 2147483648 is out of range; {INT32}",
    "{replicas: 010}": "3:18: data.replicas: 010 is a whole number that YAML parsers interpret differently; "
    "write it in decimal, without leading zeros",
    "{replicas: 1:30}": "3:18: data.replicas: 1:30 is a whole number that YAML parsers interpret differently; "
    "write it in decimal, without leading zeros",
    "{replicas: }": f"3:18: data.replicas: the value is missing; {INT32}, or leave it out",
    "{replicas: ~}": f"3:18: data.replicas: ~ means no value; {INT32}, or leave it out",
    "{replicas: [3]}": f"3:18: data.replicas: expected a single value, got a list; {INT32}",
    "{limits: {memory: -1}}": f"3:25: data.limits.memory: -1 is out of range; {UINT32}",
    "{limits: {cpu: '1'}}": "3:22: data.limits.cpu: '1' is text; write a number: remove the quotes",
    "{limits: {cpu: 010}}": "3:22: data.limits.cpu: 010 is a whole number that YAML parsers interpret differently; "
    "write it in decimal, without leading zeros",
    "{limits: {cpu: fast}}": "3:22: data.limits.cpu: 'fast' is text; write a number",
    "{limits: {cpu: on}}": "3:22: data.limits.cpu: on is read as a boolean; write a number",
    "{limits: 3}": "3:16: data.limits: expected a map of Limits's fields, got 3",
    "{limits: }": "3:16: data.limits: expected a map of Limits's fields, got nothing; write {} for an empty one",
    "{note: yes}": "3:14: data.note: yes is read as a boolean, not text; quote it: 'yes'",
    "{note: 1.10}": "3:14: data.note: 1.10 is read as a number, not text; quote it: '1.10'",
    "{note: 1e3}": "3:14: data.note: 1e3 is read as a number, not text; quote it: '1e3'",
    "{note: 08}": "3:14: data.note: 08 is read as a number, not text; quote it: '08'",
    "{note: 8080}": "3:14: data.note: 8080 is read as a whole number, not text; quote it: '8080'",
    "{note: 2024-01-01}": "3:14: data.note: 2024-01-01 is read as a date, not text; quote it: '2024-01-01'",
    "{note: {a: b}}": "3:14: data.note: expected a single value, got a map; write text",
    "{command: sh}": "3:17: data.command: expected a list, got 'sh'",
    "{command: }": "3:17: data.command: expected a list, got nothing; write [] for an empty one",
    "{command: [sh, 1]}": "3:22: data.command[1]: 1 is read as a whole number, not text; quote it: '1'",
    "{environment: [a]}": "3:21: data.environment: expected a map, got a list",
    "{environment: {PORT: 80}}": "3:28: data.environment.PORT: 80 is read as a whole number, not text; quote it: '80'",
    "{environment: {NO: a}}": "3:22: data.environment.NO: as a key, NO is read as a boolean, not text; quote it: 'NO'",
    "{environment: {a b: 1}}": "3:27: data.environment['a b']: 1 is read as a whole number, not text; quote it: '1'",
    "{ports: {http: {}}}": "3:16: data.ports.http: as a key, 'http' is text; write a whole number from "
    "-9223372036854775808 to 9223372036854775807 (int64)",
    "{ports: {80: {cpu: a}}}": "3:26: data.ports.80.cpu: 'a' is text; write a number",
    "{ports: {80: {}, 0x50: {}}}": "3:24: data.ports.0x50: the key 0x50 was already given at line 3, column 16: "
    "keep one of them",
    "{policy: ALLWAYS}": "3:16: data.policy: 'ALLWAYS' is not a Policy; did you mean 'ALWAYS'?",
    "{policy: NO}": "3:16: data.policy: NO is read as a boolean; quote it: 'NO'",
    "{policy: 2147483648}": "3:16: data.policy: 2147483648 is out of range; write one of ALWAYS, NEVER, NO",
    "{policy: 1.5}": "3:16: data.policy: 1.5 is read as a number; write one of ALWAYS, NEVER, NO",
    "{paused: 'true'}": "3:16: data.paused: 'true' is text; write true or false: remove the quotes",
    "{paused: 1}": "3:16: data.paused: 1 is read as a whole number; write true or false",
    "{icon: a.b}": "3:14: data.icon: 'a.b' is not bytes as base64 text, such as 'aGVsbG8='",
    "{icon: é}": "3:14: data.icon: 'é' is not bytes as base64 text, such as 'aGVsbG8='",
    "{since: 2024-01-01}": f"3:15: data.since: 2024-01-01 is read as a date; {MOMENT}",
    "{since: '2024-01-01T00:00:00'}": f"3:15: data.since: '2024-01-01T00:00:00' is text; {MOMENT}",
    "{since: '2024-02-30T00:00:00Z'}": f"3:15: data.since: '2024-02-30T00:00:00Z' is not a valid timestamp; {MOMENT}",
    "{since: '2024-01-01T00:00:00.1234567Z'}": "3:15: data.since: '2024-01-01T00:00:00.1234567Z' is more precise than "
    "a microsecond; write at most six digits after the point",
    "{grace_period: 5}": "3:22: data.grace_period: 5 is read as a whole number without a unit; write '5s'",
    "{grace_period: 5m}": "3:22: data.grace_period: '5m' is text; write seconds, such as '1.5s'",
    "{grace_period: 999999999999s}": "3:22: data.grace_period: '999999999999s' is out of range; "
    "the longest duration is '315576000000s'",
    "{grace_period: 1s, gracePeriod: 2s}": "3:26: data.gracePeriod: grace_period was already given at line 3, "
    "column 8 in another spelling: keep one",
    "{replicas: 1, replicas: 1}": "3:21: data.replicas: the key 'replicas' was already given at line 3, column 8: "
    "keep one of them",
    "[a]": "3:7: data: expected a map of App's fields, got a list",
    "": "3:6: data: expected a map of App's fields, got nothing; write {} for an empty one",
}

# Each text is a whole document.
DOCUMENTS = {
    "name: a": "1:1: type is required",
    "type: App": "1:1: name is required",
    "type: App\nname:": "2:6: name: the value is missing; write text, or leave it out",
    "type: App\nname: 12": "2:7: name: 12 is read as a whole number, not text; quote it: '12'",
    "type: App\nname: [a]": "2:7: name: expected text, got a list",
    "type: App\nname: Web": f"2:7: name: 'Web' is not a valid name: {NAME}",
    "type: App\nname: ''": "2:7: name: name is required",
    "type: App\nname: a\nnamespace: b_c": f"3:12: namespace: 'b_c' is not a valid name: {NAME}",
    "type: App\nname: a\npartition: P": f"3:12: partition: 'P' is not a valid name: {NAME}",
    "type: Node\nname: a\nnamespace: b": "3:12: namespace: partition '' and namespace 'b' must be empty: "
    "the type is cluster-scoped",
    "type: fleet.v1.Ap\nname: a": "1:7: type: type fleet.v1.Ap is not registered; did you mean 'fleet.v1.App'?",
    "type: Ap\nname: a": "1:7: type: type 'Ap' is not registered; write it as group.version.Kind; did you mean 'App'?",
    "type: fleet.App\nname: a": "1:7: type: type 'fleet.App' is not registered; write it as group.version.Kind; "
    "did you mean 'fleet.v1.App'?",
    "type: Job\nname: a": "1:7: type: several types have the kind 'Job'; write one of fleet.v1.Job, fleet.v2.Job",
    "type: [a]\nname: a": "1:7: type: expected text, got a list",
    "type: {group: fleet, kind: App}\nname: a": "1:7: type: version is required",
    "type: {group: fleet, version: v1, kind: App, name: a}\nname: a": "1:46: type.name: a type has no field 'name'; "
    "known: group, kind, version",
    "type: {group: fleet, version: 1, kind: App}\nname: a": "1:31: type.version: 1 is read as a whole number, "
    "not text; quote it: '1'",
    "type: App\nname: a\nstatus: {}": f"3:1: status: a status is written by controllers, never by a manifest: {LEAVE}",
    "type: App\nname: a\nundecodable: x": "3:1: undecodable: the server's payload could not be read, and is missing "
    "here: remove the cause, and read it again",
    "type: App\nname: a\nversion: 3": f"3:1: version: the store assigns the version with every change: {LEAVE}",
    "type: App\nname: a\ngeneration: x": f"3:1: generation: the store assigns the generation with every write: {LEAVE}",
    "type: App\nname: a\nuid: x": f"3:1: uid: the store assigns the uid when it creates a resource: {LEAVE}",
    "type: App\nname: a\nid: {}": "3:1: id: write an id as its parts: type, name, and namespace and partition "
    "if they are not the default",
    "type: App\nname: a\nspec: {}": "3:1: spec: the payload's fields go under data",
    "type: App\nname: a\nmetdata: {}": "3:1: metdata: a document has no field 'metdata'; did you mean 'metadata'?",
    "type: App\nname: a\nmetadata: [a]": "3:11: metadata: expected a map, got a list",
    "type: App\nname: a\nmetadata: {a: 1}": "3:15: metadata.a: 1 is read as a whole number, not text; quote it: '1'",
    "type: App\nname: a\nmetadata: {1: a}": "3:12: metadata.1: as a key, 1 is read as a whole number, not text; "
    "quote it: '1'",
    "type: App\nname: a\nmetadata: {deletionTimestamp: x}": "3:12: metadata.deletionTimestamp: only the store sets "
    "this: delete the resource instead",
    "type: App\nname: a\nowner: b": "3:8: owner: expected a map with type and name, got 'b'",
    "type: App\nname: a\nowner: {type: App}": "3:8: owner: name is required",
    "type: App\nname: a\nowner: {type: Nod, name: b}": "3:15: owner.type: type 'Nod' is not registered; "
    "write it as group.version.Kind; did you mean 'Node'?",
    "type: App\nname: a\nowner: {type: App, name: b, uid: c}": f"3:29: owner.uid: the store assigns the uid when it "
    f"creates a resource: {LEAVE}",
    "type: Node\nname: a\nowner: {type: Node, name: b, namespace: c}": "3:41: owner.namespace: partition '' and "
    "namespace 'c' must be empty: the type is cluster-scoped",
    "- type: App": "1:1: expected a map with type, name and data, got a list",
    "web": "1:1: expected a map with type, name and data, got this value",
    "type: App\nname: a\n---\ntype: App\nname: a": "4:1: App a was already given at line 1, column 1: keep one of them",
    "type: fleet.v1.Job\nname: a\n---\ntype: fleet.v2.Job\nname: a": "4:1: Job a was already given at line 1, "
    "column 1: keep one of them",
    "type: Choice\nname: a\ndata:\n  port: 1\n  path: x": "5:3: data.path: only one of target can be set, and port "
    "is set at line 4, column 3: keep one of them",
}


@pytest.mark.parametrize("value", VALUES)
def test_value_errors_have_a_place_and_a_valid_form(value: str) -> None:
    """The error has the line and column of the value, or of the key if the key is wrong."""
    assert only_problem_of(f"type: App\nname: web\ndata: {value}") == f"f:{VALUES[value]}"


@pytest.mark.parametrize("text", DOCUMENTS)
def test_document_errors_have_a_place_and_a_valid_form(text: str) -> None:
    """A missing part is reported at the document's beginning."""
    assert only_problem_of(text) == f"f:{DOCUMENTS[text]}"


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        ("int64", 1 << 63, "int64"),
        ("sint32", -(1 << 31) - 1, "sint32"),
        ("uint64", 1 << 64, "uint64"),
        ("fixed32", 1 << 32, "fixed32"),
        ("fixed64", -1, "fixed64"),
        ("sfixed64", 10**500, "sfixed64"),
    ],
)
def test_whole_numbers_must_be_in_the_range_of_their_kind(field: str, value: int, kind: str) -> None:
    """A number of any length is only out of range."""
    problem = only_problem_of(f"{{type: Every, name: a, data: {{{field}: {value}}}}}")
    assert " is out of range; write a whole number from " in problem
    assert problem.endswith(f"({kind})")


def test_all_problems_are_reported_at_once_and_in_order() -> None:
    """Problems of one document don't hide problems of another, and a broken document doesn't hide those before it."""
    text = "type: App\nnmae: a\ndata: {replicas: x}\n---\ntype: App\nname: B\n---\na: [1"
    assert [problem.split(": ")[0] for problem in problems_of(text)] == ["f:1:1", "f:2:1", "f:3:18", "f:6:7", "f:8:6"]


def test_problem_inside_an_alias_has_the_place_of_its_anchor() -> None:
    """Each path that leads to it is named."""
    text = "type: App\nname: a\ndata: {limits: &l {cpu: x}, ports: {1: *l}}"
    assert problems_of(text) == [
        "f:3:25: data.limits.cpu: 'x' is text; write a number",
        "f:3:25: data.ports.1.cpu: 'x' is text; write a number",
    ]
