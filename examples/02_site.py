"""Sites are rendered to files, from pages and themes. Run it with `python examples/02_site.py DIRECTORY`."""

import shutil
import sys

import trio

import headway
from headway import field


@headway.message
class Site:
    """Some pages in one look."""

    theme: str = field(1)


@headway.message
class Page:
    """A text of a site."""

    site: str = field(1)
    text: str = field(2)


@headway.message
class Theme:
    """What is around each text."""

    frame: str = field(1)


app = headway.App("web")
SITE = app.type("web", "v1", "Site", Site)
PAGE = app.type("web", "v1", "Page", Page)
THEME = app.type("web", "v1", "Theme", Theme)
PAGES_BY_SITE = headway.indexes.by_reference(PAGE, "site", lambda page: SITE.id(page.data.site))
SITES_BY_THEME = headway.indexes.by(SITE, "theme", lambda site: site.data.theme)
ROOT = trio.Path(sys.argv[1] if len(sys.argv) > 1 else "site")


@app.controller(
    manages=SITE,
    watches=[
        headway.watch(
            PAGE, headway.mappers.reference(lambda page: page.data.site), when=headway.predicates.data_changed()
        ),
        headway.watch(THEME, headway.mappers.index(SITES_BY_THEME, value=lambda theme: theme.name)),
    ],
    indexes=[PAGES_BY_SITE, SITES_BY_THEME],
)
async def render(rt: headway.Runtime, request: headway.Request[Site]) -> None:
    """A site has a directory with a file for each of its pages, and nothing of what is gone."""
    site = rt.resource(request)
    if site is None:
        return
    directory = ROOT / site.name
    async with rt.finalizer(site) as guarded:
        if guarded.cleaning_up:
            await trio.to_thread.run_sync(shutil.rmtree, directory, True)
        elif guarded.alive:
            theme = rt.cache.get(THEME, site.data.theme)
            if theme is None:
                raise headway.PermanentFailure(f"no theme {site.data.theme!r}")  # called again when there is one
            wanted = {f"{page.name}.html": page.data.text for page in rt.cache.index(PAGES_BY_SITE, site.id)}
            await directory.mkdir(parents=True, exist_ok=True)
            for name, text in wanted.items():
                await (directory / name).write_text(theme.data.frame.replace("TEXT", text))
            for path in await directory.iterdir():
                if path.name not in wanted:
                    await path.unlink()


async def show(engine: headway.Engine) -> None:
    """Print the content of the files once no work is pending."""
    await engine.wait_idle()
    print({path.name: await path.read_text() for path in sorted(await ROOT.glob("*/*"))})


async def main() -> None:
    """Make a site, change its look, take a page away, and then the site."""
    async with headway.open_engine("memory:", app) as engine:
        client = engine.client
        await client.apply(SITE.new("home", Site(theme="plain")))
        await client.apply(PAGE.new("index", Page(site="home", text="Welcome")))
        await client.apply(PAGE.new("about", Page(site="home", text="About us")))
        await show(engine)
        await client.apply(THEME.new("plain", Theme(frame="<p>TEXT</p>")))
        await show(engine)
        await client.apply(THEME.new("plain", Theme(frame="<h1>TEXT</h1>")))
        await client.delete(PAGE.id("about"))
        await show(engine)
        await client.delete(SITE.id("home"))
        await show(engine)


if __name__ == "__main__":
    trio.run(main)
