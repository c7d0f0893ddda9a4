"""Hooks of MkDocs: pages for what is not in docs/, and links to them.

The README is the home page. Every file outside of docs/ that a page links to becomes a page: Markdown as it is,
anything else as its source.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import ranking
import reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(\]\()(?!\w+:|#)([^)#\s]+)((?:#[^)]*)?\))")
LANGUAGES = {".py": "python", ".go": "go", ".yaml": "yaml", ".proto": "protobuf"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the reference to the navigation, and the pages from outside of docs/."""
    assert config.nav is not None
    config.nav.append({"Reference": [each.page for each in reference.modules()]})
    config.nav.append({"Project": ["CHANGELOG.md", "CONTRIBUTING.md"]})
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for module in reference.modules():
        files.append(File.generated(config, module.page, content=module.text()))
    ahead = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
    for page in Path(config.docs_dir).rglob("*.md"):
        ahead += _linked(page.relative_to(ROOT).as_posix(), page.read_text())
    done: set[str] = set()
    while ahead:
        path = ahead.pop()
        if path in done or path.startswith("docs/"):
            continue
        done.add(path)
        text = _text(path)
        files.append(File.generated(config, _page(path), content=text))
        if path.endswith(".md"):
            ahead += _linked(path, text)
        elif (ROOT / path).is_dir():
            ahead += _sources(path)
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Point the links of a page to the pages of the site, and weigh it in the search."""
    page.meta.setdefault("search", {"boost": ranking.boost(page.file.src_uri)})
    source = _source(page.file.src_uri)
    if source is None:
        return markdown

    def moved(link: re.Match[str]) -> str:
        target = _resolved(source, link[2])
        return link[1] + posixpath.relpath(_page(target), posixpath.dirname(page.file.src_uri) or ".") + link[3]

    return LINK.sub(moved, markdown)


def on_nav(nav: Any, **_: Any) -> Any:
    """Give each page of the reference its module's short name."""
    for module in reference.modules():
        for page in nav.pages:
            if page.file.src_uri == module.page:
                page.title = module.name
    return nav


def _linked(source: str, text: str) -> list[str]:
    return [_resolved(source, link[2]) for link in LINK.finditer(text)]


def _resolved(source: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def _page(path: str) -> str:
    """Return the path in the site of a file of the repository."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path if path.endswith(".md") else f"{path}.md"


def _source(page: str) -> str | None:
    """Return the file of the repository that a page of the site shows. None for a page that is made from sources."""
    if page == "index.md":
        return "README.md"
    for path in (f"docs/{page}", page):
        if (ROOT / path).is_file():
            return path
    return None


def _sources(folder: str) -> list[str]:
    """Return the paths of the sources in a folder of the repository."""
    found = [each for each in (ROOT / folder).rglob("*") if each.suffix in LANGUAGES and each.name != "__init__.py"]
    return sorted(each.relative_to(ROOT).as_posix() for each in found if "__pycache__" not in each.parts)


def _text(path: str) -> str:
    """Return the page of a file or a folder of the repository."""
    found = ROOT / path
    if path.endswith(".md"):
        return found.read_text()
    if found.is_dir():
        names = [posixpath.relpath(each, posixpath.dirname(path)) for each in _sources(path)]
        return f"# {path}\n\n" + "".join(f"- [{name}]({name}.md)\n" for name in names)
    text = found.read_text()
    fence = max(map(len, re.findall(r"`{3,}", text)), default=2) + 1
    return f"# {path}\n\n{'`' * fence}{LANGUAGES.get(found.suffix, 'text')}\n{text.rstrip()}\n{'`' * fence}\n"
