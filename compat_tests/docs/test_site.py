"""The documentation holds together: links, anchors and the list of pages; and MkDocs makes a site of it that needs no other host."""

import html.parser
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from compat_tests.docs.pages import (
    COURSE,
    DOCS,
    PAGES,
    ROOT,
    anchor_in_the_repository,
    anchor_on_the_site,
    headings,
    links,
)

LINKED = [
    *PAGES,
    *COURSE,
    ROOT / "ARCHITECTURE.md",
    ROOT / "benchmarks" / "README.md",
    ROOT / "compat_tests" / "README.md",
]


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    broken = [f"line {line}: {target}" for line, target in links(page) if not leads_somewhere(page, target)]
    assert broken == []


def leads_somewhere(page: Path, target: str) -> bool:
    if target.startswith(("https://", "http://", "mailto:")):
        return True
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.is_file() or not file.is_relative_to(ROOT):
        return False
    if not anchor:
        return True
    # A link has to work on the site and in the repository, whose anchors differ for some headings.
    found = [each for each in headings(file) if anchor_on_the_site(each) == anchor]
    return len(found) == 1 and anchor_in_the_repository(found[0]) == anchor


def test_the_site_lists_each_page_once() -> None:
    listed: list[str] = []

    def walk(entries: list[dict[str, object]]) -> None:
        for entry in entries:
            for place in entry.values():
                walk(place) if isinstance(place, list) else listed.append(str(place))

    walk(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


class Loads(html.parser.HTMLParser):
    """What a browser fetches to show a page: everything that names a source, and links that are no anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = dict(attributes)
        targets = [named.get("src"), named.get("srcset"), named.get("data"), named.get("poster")]
        targets += [named.get("href")] if tag != "a" and named.get("rel") != "canonical" else []
        self.targets += [each for each in targets if each]


def mkdocs(site: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Makes a site as `make docs` does. Not quietly: MkDocs would pass over what it warns of."""
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = mkdocs(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_mkdocs_makes_a_site_that_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert {f"{page.stem}.html" for page in DOCS.glob("*.md")} <= {page.name for page in pages}
    for page in pages:
        loads = Loads()
        loads.feed(page.read_text())
        assert len(loads.targets) > 3, page
        foreign = [each for each in loads.targets if "//" in each and not each.startswith("data:")]
        assert foreign == [], page
    for style in site.rglob("*.css"):
        assert "url(http" not in style.read_text().replace('"', "").replace("'", ""), style


BROKEN = {"a page": "nowhere.md", "a heading": "#nowhere", "a file of the repository": "../nowhere.py"}


def test_a_broken_link_ends_it(tmp_path: Path) -> None:
    """Each of these is named. The rest is as in mkdocs.yml."""
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.md").write_text("# It\n\n" + "\n".join(f"[{what}]({target})" for what, target in BROKEN.items()))
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: {pages}\nhooks: [{ROOT / '.ci/docs_site.py'}]\nnav: []\n"
    )
    done = mkdocs(tmp_path / "site", "--config-file", str(config))
    assert done.returncode != 0
    assert [target for target in BROKEN.values() if target not in done.stderr] == []


STYLE, CONSOLE_STYLE = DOCS / "site" / "site.css", ROOT / "server" / "admin" / "console" / "static" / "console.css"


def colours(text: str) -> list[tuple[str, str]]:
    return re.findall(r"--([a-z-]+): (#[0-9a-f]{6})\b", text)


def test_the_site_has_the_colours_of_the_console() -> None:
    of_console = [dict(colours(each)) for each in CONSOLE_STYLE.read_text().split("@media", 1)]
    of_site = [dict(colours(each)) for each in STYLE.read_text().split('[data-bs-theme="dark"]', 1)]
    for site, console in zip(of_site, of_console, strict=True):
        assert len(site) >= 8
        assert {name: console.get(name) for name in site} == site
    for name, code in colours(STYLE.read_text()):
        if f"--{name}-rgb" in STYLE.read_text():
            parts = ", ".join(str(int(code[place : place + 2], 16)) for place in (1, 3, 5))
            assert f"--{name}-rgb: {parts};" in STYLE.read_text()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    pytest.importorskip("selenium")
    from compat_tests.console.browser import CHROMIUM, DRIVER, Browser

    if not (CHROMIUM and DRIVER):
        pytest.skip("chromium and chromedriver are not on this machine")
    browser = Browser(tmp_path_factory.mktemp("pictures"))
    yield browser
    browser.close()


def test_no_page_is_wider_than_its_window(site: Path, browser) -> None:
    pages = [page for page in sorted(site.rglob("*.html")) if "repository" not in page.relative_to(site).parts]
    assert len(pages) > 20
    for page in pages:
        browser.driver.get(page.as_uri())
        for width in (1280, 390):
            browser.look((width, 844))
            seen = browser.run("return [document.documentElement.scrollWidth, document.body.scrollHeight]")
            assert seen[0] <= width, f"{page.name} at {width} pixels"
            assert seen[1] > 300, page.name


def test_the_search_field_of_the_settings_shows_only_those_with_the_words(site: Path, browser) -> None:
    browser.look()
    browser.open((site / "settings.html").as_uri())
    shown = (
        "return [...document.querySelectorAll('[role=main] h2, [role=main] h3')].filter((each) => each.checkVisibility())"
        ".map((each) => each.innerText.trim())"
    )
    assert len(browser.run(shown)) > 500
    browser.fill("#filter-words", "log.retention Hours")
    assert browser.run(shown) == ["Brokers", "log.retention.hours", "Topics", "retention.ms"]
    browser.fill("#filter-words", "no such word")
    assert browser.run(shown) == []
    assert browser.find("#filter output").text.startswith("0 of ")
    browser.run("location.hash = '#logretentionms'")
    browser.until(lambda: len(browser.run(shown)) > 500, "a link to a hidden setting shows all settings again")


def test_a_reader_chooses_light_or_dark(site: Path, browser) -> None:
    browser.look()
    browser.open((site / "index.html").as_uri())
    shown = "return [document.documentElement.dataset.bsTheme, getComputedStyle(document.body).backgroundColor]"
    for name, colour in (("dark", "rgb(22, 23, 21)"), ("light", "rgb(252, 251, 249)")):
        browser.click("#theme-menu")
        browser.click(f"[data-bs-theme-value={name}]")
        browser.until(lambda expected=[name, colour]: browser.run(shown) == expected, f"the page is {name}")


@pytest.mark.parametrize("drawing", sorted(DOCS.rglob("*.svg")), ids=lambda path: path.name)
def test_a_drawing_has_colours_for_dark_pages(drawing: Path) -> None:
    text = drawing.read_text()
    style = text.partition("<style>")[2].partition("</style>")[0]
    bright, _, dark = style.partition("@media (prefers-color-scheme: dark)")
    assert dark
    classes = {name for each in (bright, dark) for name in re.findall(r"\.([a-z]+)[ ,{]", each)}
    assert {"way", "head"} <= classes
    assert re.findall(r'(?:fill|stroke)="#', text) == [], "this colour does not change on dark pages"
