"""Stories as pages: valid, self-contained and harmless, with everything linked; and the file that a page goes to."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.testing import simulation
from headway.testing.simulation import Committed, Finding, Plan, Result, Setting, Trace, run
from headway.testing.simulation.stories import page, told
from tests.helpers.corpus.programs import CORE, TEAM, program, result_of
from tests.helpers.corpus.staff import Account, Cloud, Team, one_team
from tests.simulation.test_stories import fighting, makes

_VOID = {"meta", "input"}
MARKUP = "</td></table><img src=x onerror=alert(1)><script>alert(2)</script>&amp;\u202e\x07"


class Page(HTMLParser):
    """A page that was read: its elements, with every end tag at its place, and its texts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.classes: dict[str, str] = {}
        self.links: list[str] = []
        self.policy = ""
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        if tag not in _VOID:
            self._open.append(tag)
        assert not [name for name in given if name.startswith("on") or name in ("style", "src")]
        if given.get("id"):
            assert given["id"] not in self.classes
            self.classes[given["id"] or ""] = given.get("class") or ""
        if "href" in given:
            self.links.append(given["href"] or "")
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def page_of(result: Result, plan: str = "none", **settings: Any) -> Page:
    findings = settings.get("findings", result.findings)
    return Page(page("a test", Plan.parse(plan), result, findings))


def test_page_has_lanes_and_needs_nothing_else() -> None:
    setting = Setting(app=fighting(busy=1), scenario=one_team, quiet=None, processes=2)
    read = page_of(run(setting, Plan(), most_steps=60))
    assert read.texts["th"] == ["s", "store", "p1", "p2", "outside"]
    assert all(link.startswith("#") for link in read.links)
    (style,), (script,) = read.texts["style"], read.texts["script"]
    assert "url(" not in style
    assert "import" not in style
    assert read.policy == (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert "prefers-color-scheme: dark" in style


def test_faults_and_causes_are_marked_and_linked_from_the_top() -> None:
    result = result_of(makes, "crash_after(1)")
    calls = tuple(step for step in result.trace.steps if "make" in step.method)
    read = page_of(result, "crash_after(1)", findings=[Finding("outside", "is wrong", entries=calls)])
    assert {link[1:] for link in read.links} <= set(read.classes)
    to_causes, to_fault = read.links[:2], read.links[2]
    assert [read.classes[link[1:]] for link in to_causes] == ["cause", "cause"]
    assert read.classes[to_fault[1:]] == "fault"
    assert read.links.count("#finding-0") == 2


def test_markup_in_names_and_payloads_stays_text() -> None:
    async def puts_markup(rt: headway.Runtime, _: object, account: Any, process: simulation.Process) -> None:
        await process.outside.put(MARKUP)
        await rt.apply(account.new("ada", Account(login=MARKUP)))
        raise ValueError(MARKUP)

    result = result_of(puts_markup, most=10)
    text = page("a test", None, result, [Finding("end state", f"Account ada is {MARKUP}")])
    read = Page(text)
    assert (read.tags.count("script"), read.tags.count("img"), read.tags.count("table")) == (1, 0, 1)
    said = "Account ada is </td></table><img src=x onerror=alert(1)><script>alert(2)</script>&amp;\\u202e\\x07"
    assert [each for each in read.texts["span"] if said in each]
    assert "\u202e" not in text
    assert "\x07" not in text
    assert [each for each in read.texts["td"] if "put('</td></table><img" in each]


def test_long_run_is_shown_in_part_with_its_causes() -> None:
    trace = Trace()
    for revision in range(1, 9001):
        trace.add(Committed(0.0, revision, TEAM, CORE, None, None, "notes", 1))
    result = Result(trace=trace, end={}, counts={}, outside=None, findings=())
    read = page_of(result, findings=[Finding("always", "is wrong", entries=(trace.commits[8999],))])
    assert read.classes["e8999"] == "cause"
    assert len([name for name in read.classes if name.startswith("e")]) == 4000
    assert [text for text in read.texts["td"] if text.endswith("entries are left out")]


# --- the file ---


@pytest.fixture(autouse=True)
def in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers of a parallel test run add their names to the files."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)


def refuted(path: object, monkeypatch: pytest.MonkeyPatch, test: str = "tests/test_a.py::test_a (call)") -> list[str]:
    """Return the lines of the story of a failed run."""
    monkeypatch.setenv("HEADWAY_STORY", str(path))
    monkeypatch.setenv("PYTEST_CURRENT_TEST", test)
    result = Result(trace=Trace(), end={}, counts={}, outside=None, findings=(Finding("counts", "is wrong"),))
    lines = told(Plan.parse("crash_after(1)"), result, result.findings).splitlines()
    assert lines[0] == "counts: is wrong"
    assert [line for line in lines if line.startswith("again: ")]
    return lines


def test_exploration_writes_the_page_of_its_story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "story.html"
    monkeypatch.setenv("HEADWAY_STORY", str(file))
    with pytest.raises(simulation.Refuted) as caught:
        simulation.explore(program(makes), one_team, outside=Cloud, plan="crash_after(1)")
    assert str(caught.value).splitlines()[-1] == f"page: {file}"
    read = Page(file.read_text())
    (title,) = read.texts["title"]
    assert title.endswith("::test_exploration_writes_the_page_of_its_story")
    assert [each for each in read.texts["span"] if each == str(caught.value.findings[0])]


@pytest.mark.parametrize("given", ["", "/", "/{test}.html"])
def test_file_in_a_folder_has_the_name_of_the_test(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refuted(f"{tmp_path}{given}", monkeypatch)[-1] == f"page: {tmp_path / 'tests.test_a.py.test_a.html'}"
    lines = [
        refuted(f"{tmp_path}{given}", monkeypatch, f"t.py::t[{case}] (call)")[-1] for case in ("a/b", "a b", 300 * "x")
    ]
    names = [Path(line.removeprefix("page: ")).name for line in lines]
    assert len(set(names)) == len(list(tmp_path.iterdir())) - 1 == 3
    assert all(re.fullmatch(r"t\.py\.t-[\w.-]+-[0-9a-f]{6}\.html", name) for name in names)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("absent/story.html", "the folder {}/absent does not exist; create it, or name another one"),
        ("absent/", "the folder {}/absent does not exist; create it, or name another one"),
        ("story", "expected a folder, or a file name that ends with .html, such as story.html"),
        ("file/story.html", "the folder {}/file does not exist; create it, or name another one"),
        (f"{300 * 'x'}.html", "File name too long"),
    ],
)
def test_value_that_names_no_file_is_an_error_below_the_story(
    given: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    value = f"{tmp_path}/{given}"
    expected = f"page: not written, HEADWAY_STORY={value!r}: {why.format(tmp_path)}"
    assert refuted(value, monkeypatch)[-1] == expected


def test_without_the_variable_no_page_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert refuted("", monkeypatch)[-1].startswith("again: ")
    assert list(tmp_path.iterdir()) == []


def test_machine_writes_the_page_of_its_story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Makes(simulation.Machine):
        app = staticmethod(program(makes))
        outside = Cloud
        holds = (nothing_is_right,)

    monkeypatch.setenv("HEADWAY_STORY", str(tmp_path / "story.html"))
    machine = Makes()
    machine.open_the_world()
    machine.call(machine.world.client.apply, machine.world.type("Team").new("core", Team()))
    with pytest.raises(AssertionError) as caught:
        machine.teardown()
    assert str(caught.value).splitlines()[-1] == f"page: {tmp_path / 'story.html'}"
    assert "nothing_is_right: it is wrong" in (tmp_path / "story.html").read_text()


def nothing_is_right(_: simulation.World) -> None:
    raise AssertionError("it is wrong")
