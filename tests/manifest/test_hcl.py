"""HCL: Consul's form and Headway's, the syntax that both allow, and errors with their place."""

import sys
import time
from pathlib import Path

import pytest

from headway.documents import Mapping, Problems, Scalar, format_of, parse
from headway.documents._hcl import _UNKNOWN, _known
from headway.manifest import ManifestError, load, load_file
from tests.manifest.messages import APP, NODE, REGISTRY, App, Choice, Every, Limits, Policy

ORIGIN = """\
# As the origin writes it, in any order.
Data {
  Command = ["python3", "web.py"]
  Policy  = "NEVER"
  Ports "80" { Cpu = 1.5 }
  Ports "443" {}
}
ID {
  Type = gvk("fleet.v1.App")
  Tenancy {
    Partition = "default"
    Namespace = "prod"
  }
  Name = "web"
}
Metadata = { "team" = "core" }
Owner { Type = gvk("fleet", "v1", "Node")  Name = "one" }
"""
OURS = """\
type      = "fleet.v1.App"
name      = "web"
namespace = "prod"
metadata  = { team : "core" }
owner { type = "Node" name = "one" }
data = {
  command = ["python3", "web.py"]
  policy  = "NEVER",
  ports   = { 80 = { cpu = 1.5 }, "443" = {} }
}
"""
BLOCKS = """\
ID {
  Type {
    Group = "fleet"
    GroupVersion = "v1"
    Kind = "App"
  }
  Name = "web"
  Tenancy = { Partition = "default", Namespace = "prod" }
}
Data = { Command = ["python3", "web.py"], Policy = "NEVER", Ports = { "80" = { Cpu = 1.5 }, "443" = {} } }
Metadata { team = "core" }
Owner = { Type = gvk("fleet.v1.Node"), Name = "one" }
"""


def resources_of(text: str) -> list[object]:
    return list(load(text, REGISTRY, format="HCL"))


def problems_of(text: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        load(text, REGISTRY, source="f", format="HCL")
    return [str(problem) for problem in caught.value.problems]


def data_of(fields: str, type: str = "Every") -> Every:
    [resource] = load(f'type = "{type}"\nname = "a"\ndata {{\n{fields}\n}}', REGISTRY, format="HCL")
    data: Every = resource.data
    return data


@pytest.mark.parametrize("text", [ORIGIN, OURS, BLOCKS, ORIGIN.replace("\n", "\r\n"), f"\ufeff{OURS}"])
def test_both_hcl_forms_mean_the_same_resource(text: str) -> None:
    """Blocks or objects, a whole id or its parts, and names in the style of Go, protobuf or JSON."""
    app = App(command=["python3", "web.py"], policy=Policy.NEVER, ports={80: Limits(cpu=1.5), 443: Limits()})
    expected = APP.new("web", app, namespace="prod", owner=NODE.id("one"), metadata={"team": "core"})
    assert resources_of(text) == [expected]


def test_each_resource_block_is_a_document() -> None:
    """An empty text has none."""
    text = 'resource {\n type = "App"\n name = "a"\n}\nresource {\n type = "Node"\n name = "b"\n}\n'
    assert resources_of(text) == [APP.new("a"), NODE.new("b")]
    assert resources_of('resource { type = "App"\n name = "a" }') == [APP.new("a")]
    assert resources_of("# nothing\n") == []


def test_blocks_of_a_repeated_field_are_a_list() -> None:
    """The message's class decides if a single block is a list."""
    assert data_of("parts { cpu = 1 }\nparts { memory = 2 }").parts == [Limits(cpu=1), Limits(memory=2)]
    assert data_of("parts { cpu = 1 }").parts == [Limits(cpu=1)]
    assert data_of("limits { cpu = 1 }").limits == Limits(cpu=1)


def test_names_may_be_in_the_style_of_go_protobuf_or_json() -> None:
    """MaybeText, maybe_text and maybeText are one field."""
    for name in ("MaybeText", "maybe_text", "maybeText"):
        assert data_of(f'{name} = "x"').maybe_text == "x"


VALUES = {
    'text = "a\\tb\\"c\\\\ \\u00e9\\U0001F600"': ("text", 'a\tb"c\\ é😀'),
    'text = "$${x} %%{y} $x"': ("text", "${x} %{y} $x"),
    "text = <<EOT\na\n  $${b} \\n\nEOT": ("text", "a\n  ${b} \\n\n"),
    "text = <<-EOT\n    a\n      b\n    EOT": ("text", "a\n  b\n"),
    "text = <<EOT\nEOT": ("text", ""),
    'text = ""': ("text", ""),
    "sint32 = -5": ("sint32", -5),
    "uint64 = 18446744073709551615": ("uint64", 18446744073709551615),
    "double = -2.5e3": ("double", -2500.0),
    "flag = true": ("flag", True),
    "maybe_flag = null": ("maybe_flag", None),
    "flag = (true)": ("flag", True),
    'blob = "aGVsbG8="': ("blob", b"hello"),
    "ints = [1, -2,\n 3,]": ("ints", [1, -2, 3]),
    'by_flag = { true = "NEVER" }': ("by_flag", {True: Policy.NEVER}),
    'by_int = { "-5" = 1.5, 7 = 2 }': ("by_int", {-5: 1.5, 7: 2.0}),
    "choice { port = 0 }": ("choice", Choice(port=0)),
    "/* a */ flag = true // b": ("flag", True),
}


@pytest.mark.parametrize("written", VALUES)
def test_hcl_reads_every_kind_of_value(written: str) -> None:
    """Escapes, heredocs, numbers with a sign, and map keys."""
    name, value = VALUES[written]
    assert getattr(data_of(written), name) == value


# Each text is in the data of an Every, on line 4 from column 1.
WRONG = {
    "replcas = 3": "4:1: data.replcas: Every has no field 'replcas'; known: ",
    "MaybeTxt = 3": "4:1: data.MaybeTxt: Every has no field 'MaybeTxt'; did you mean 'MaybeText'?",
    "limits { Cpus = 3 }": "4:10: data.limits.Cpus: Limits has no field 'Cpus'; did you mean 'Cpu'?",
    'int32 = "3"': "4:9: data.int32: '3' is text; write a whole number from -2147483648 to 2147483647 (int32): "
    "remove the quotes",
    "int32 = 2147483648": "4:9: data.int32: 2147483648 is out of range; ",
    "text = 8080": '4:8: data.text: 8080 is read as a whole number, not text; quote it: "8080"',
    "span = 5": '4:8: data.span: 5 is read as a whole number without a unit; write "5s"',
    'policy = "NEVR"': "4:10: data.policy: 'NEVR' is not a Policy; did you mean 'NEVER'?",
    "limits { cpu = 1 }\nlimits { cpu = 2 }": "5:1: data.limits: this block was already given at line 4, column 1: "
    "keep one of them",
    'limits_of "a" {}\nlimits_of "a" {}': "5:11: data.limits_of.a: the key 'a' was already given at line 4, column 11: "
    "keep one of them",
    "flag = true\nflag = false": "5:1: data.flag: the key 'flag' was already given at line 4, column 1: "
    "keep one of them",
    "parts {}\nparts = []": "5:1: data.parts: the key 'parts' was already given at line 4, column 1: keep one of them",
    'maybe_text = "a"\nMaybeText = "b"': "5:1: data.MaybeText: maybe_text was already given at line 4, column 1 "
    "in another spelling: keep one",
    'choice {\n port = 1\n path = "x"\n}': "6:2: data.choice.path: only one of target can be set, and port is set "
    "at line 5, column 2: keep one of them",
    "text = var.name": "4:8: expressions are not allowed",
    "text = name": "4:8: a variable is not allowed in a manifest: write text in quotes",
    'text = "a${name}"': "4:10: interpolation is not allowed: write the value, or $${ for ${ and %%{ for %{",
    "text = 1 + 2": "4:8: expressions are not allowed",
    'text = upper("a")': "4:8: expressions are not allowed",
    'text = "a\nb"': "4:8: a line break is not allowed in quotes",
    'text = "\\ud800"': "4:8: this escape is not a valid character",
    'limits_of "a" "b" {}': "4:15: a block can have only one label",
    "é😀 = 1 = 2": "4:",
}
DOCUMENTS = {
    "ID {}": "1:1: type is required",
    'name = "a"': "1:1: type is required",
    'ID { Type = gvk() Name = "a" }': '1:13: invalid type name: write gvk("group.version.Kind")',
    'ID { Type = gvk(7) Name = "a" }': '1:13: invalid type name: write gvk("group.version.Kind")',
    'ID { Type = xyz("fleet.v1.App") Name = "a" }': "1:13: invalid type name: ",
    'ID { Type = gvk("fleet.v1.Ap") Name = "a" }': "1:13: ID.Type: type fleet.v1.Ap is not registered; did you mean",
    'ID { Type { Group = 7 GroupVersion = "v1" Kind = "App" } Name = "a" }': "1:21: ID.Type.Group: 7 is read as",
    'ID { Type = "App" Name = ["a"] }': "1:26: ID.Name: expected text, got a list",
    'ID { Type = "App" Nam = "a" Name = "b" }': "1:19: ID.Nam: an id has no field 'Nam'; did you mean 'Name'?",
    'ID { Type = "App" Name = "b" Uid = "x" }': "1:30: ID.Uid: an id has no field 'Uid'",
    'ID { Type = "App" Name = "a" Tenancy = "x" }': "1:40: ID.Tenancy: expected a map with partition and",
    'name = "b"\nID { Type = "App" Name = "a" }': "1:1: name: name is in ID too: keep one of them",
    'ID = "App"': "1:6: ID: expected a map with type, name and tenancy, got 'App'",
    'type = "App"\nname = "a"\nMetadata = { a = 1 }': "3:18: Metadata.a: 1 is read as a whole number, not text; quote",
    'type = "App"\nname = "a"\nMetadata = "x"': "3:12: Metadata: expected a map, got 'x'",
    'type = "App"\nname = "a"\nDta {}': "3:1: Dta: a document has no field 'Dta'; did you mean 'Data'?",
    'type = "App"\nname = "a"\nstatus {}': "3:1: status: a status is written by controllers",
    'resource { type = "App" name = "a" }\ntype = "App"': "2:1: type: only 'resource' blocks are allowed here",
}
SYNTAX = {
    "a = ": "1:5: expected a value",
    "a {\n b = 1": "2:7: a block or object doesn't end: expected '}'",
    'a = "x': "1:7: the text in quotes doesn't end",
    "a = [1, 2": "1:10: a list doesn't end: expected ']'",
    "a = <<E\nfoo": "2:4: the heredoc doesn't end",
    "a = 1\nb = @": "2:5: unexpected text",
    "type: App": "1:5: unexpected ':'",
    "a { b = 1, c = 2 }": "1:",
    "}": "1:1: unexpected '}'",
    'é = "é" b = @': "1:13: unexpected text",
    "a = \0": "1:5: the character U+0000 is not allowed",
    "a = \ud800": "1:5: the character U+D800 is not allowed",
}


@pytest.mark.parametrize("fields", WRONG)
def test_hcl_value_errors_have_a_place_and_a_valid_form(fields: str) -> None:
    """The errors are the same as in YAML, with the names and quotes of HCL."""
    problem = problems_of(f'type = "Every"\nname = "a"\ndata {{\n{fields}\n}}')[0]
    assert problem.startswith(f"f:{WRONG[fields]}"), problem


@pytest.mark.parametrize("text", DOCUMENTS)
def test_hcl_document_errors_have_a_place_and_a_valid_form(text: str) -> None:
    """The parts of an id are named in Consul's form."""
    assert any(problem.startswith(f"f:{DOCUMENTS[text]}") for problem in problems_of(text)), problems_of(text)


@pytest.mark.parametrize("text", SYNTAX)
def test_hcl_syntax_errors_have_a_place(text: str) -> None:
    """Columns count characters."""
    assert problems_of(text)[0].startswith(f"f:{SYNTAX[text]}"), problems_of(text)


@pytest.mark.parametrize("opening", ["a = [", "[", "a {\n", "a = { b = ", "a = (", 'a = "${', "a = -", "a = f("])
def test_hcl_nesting_is_bounded(opening: str) -> None:
    """A text of brackets alone fails at once, and so does one that closes them all."""
    began = time.process_time()
    assert problems_of(opening * 2_000)
    closing = {"a = [": "]", "a {\n": "}\n", "a = (": ")"}.get(opening)
    if closing is not None:
        middle = "1" if closing == ")" else ""
        inside = opening * 2_000 if opening == "a {\n" else f"a = {opening[4:] * 2_000}"
        assert "nested deeper than 100 levels" in problems_of(inside + middle + closing * 2_000)[-1]
    assert time.process_time() - began < 4


def test_file_name_selects_the_format(tmp_path: Path) -> None:
    """Otherwise its first characters do."""
    json = '{"type": "Node", "name": "a"}'
    for name, text in {
        "a.hcl": OURS,
        "b.json": json,
        "c.yaml": json,
        "d.yml": "type: Node\nname: a",
        "e": OURS,
    }.items():
        (tmp_path / name).write_text(text)
        assert load_file(tmp_path / name, REGISTRY)


@pytest.mark.parametrize(
    ("text", "format"),
    [
        (ORIGIN, "HCL"),
        (OURS, "HCL"),
        ('// a\n/* b\n*/ Ports "80" {}', "HCL"),
        ("\ufeff # a\nID {", "HCL"),
        ('{"type": 1}', "JSON"),
        ('\n[\n{"type": 1}]', "JSON"),
        ("{type: App, name: a}", "YAML"),
        ("type: App", "YAML"),
        ("# type = 1\ntype: App\n", "YAML"),
        ("---\ntype: App", "YAML"),
        ("- a", "YAML"),
        ("", "YAML"),
    ],
)
def test_first_characters_select_the_format_of_a_text(text: str, format: str) -> None:
    """A text without a name (stdin) needs no option."""
    assert format_of(text) == format


def test_missing_hcl_parser_error_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "headway.documents._hcl", raising=False)
    monkeypatch.setitem(sys.modules, "tree_sitter_hcl", None)
    with pytest.raises(ManifestError, match=r"^app.hcl:1:1: cannot read HCL because .* pip install 'headway\[hcl\]'"):
        load(ORIGIN, REGISTRY, source="app.hcl", format="HCL")
    assert load("", REGISTRY) == []


# The values that HashiCorp's own parser (hcl v2) gives these expressions.
THEIRS: dict[str, object] = {
    "1e3": 1000,
    "-1E+3": -1000,
    "15e-1": 1.5,
    "1.50": 1.5,
    "007": 7,
    r'"$$${a}"': "$${a}",
    r'"%%%{a}"': "%%{a}",
    r'"$$$${a}"': "$$${a}",
    r'"$"': "$",
    r'"e\u0301"': "é",
    "<<E\ne\u0301 $$${a}\nE": "é $${a}\n",
    "<<-E\n\tx\n  y\nE": "x\n y\n",
    "<<-E\n   x\n\ty\nE": "  x\ny\n",
    "<<-E\n  x\n \n  y\nE": "x\n \ny\n",
    "<<-E\n  x\n     \n  y\nE": "x\n     \ny\n",
    "<<-E\n \nE": " \n",
    "<<-E\n  a\n  b\n      E": "a\nb\n",
    "<<E\r\nx\r\ny\r\nE\r\n": "x\r\ny\r\n",
    '"# 1e3 $$${"': "# 1e3 $${",
    '"x" # 1e3 "': "x",
}


@pytest.mark.parametrize("written", THEIRS)
def test_hcl_value_is_that_of_hashicorps_parser(written: str) -> None:
    problems = Problems("f")
    [document] = parse(f"a = {written}\n", "HCL", problems)
    problems.raise_if_any()
    assert isinstance(document, Mapping)
    [(_, value)] = document.entries
    assert isinstance(value, Scalar)
    assert (float(value.text) if isinstance(THEIRS[written], int | float) else value.value) == THEIRS[written]


@pytest.mark.parametrize("text", ["a = << E\nx\nE\n", "a = <<1E\nx\n1E\n", 'a "${b}" {}', "{a = 1}", "# c\n{ a = 1 }"])
def test_hcl_that_hashicorps_parser_refuses_is_refused(text: str) -> None:
    """An object in place of a body was read as no document at all, without a word."""
    problems = Problems("f")
    parse(text, "HCL", problems)
    with pytest.raises(ManifestError):
        problems.raise_if_any()


def test_number_of_hcl_is_whole_in_each_form() -> None:
    """HCL has one kind of numbers."""
    [resource] = load('type = "Every"\nname = "a"\ndata { int64 = 2e3\n ints = [1.0, 1e2] }', REGISTRY, format="HCL")
    assert (resource.data.int64, resource.data.ints) == (2000, [1, 100])
    assert "is read as a number" in problems_of('type = "Every"\nname = "a"\ndata { int64 = 1.5 }')[0]


@pytest.mark.parametrize("piece", ["<<A\n", "/*", '"\\"', '"', "$${", "1e", 'a = "x"\n', "1"])
def test_text_is_prepared_in_linear_time(piece: str) -> None:
    """What never ends is scanned once."""
    began = time.process_time()
    assert len(_UNKNOWN.sub(_known, piece.encode() * 200_000)) == len(piece) * 200_000
    assert time.process_time() - began < 5
