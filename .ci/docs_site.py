"""Hooks of MkDocs (mkdocs.yml): files outside of docs/ that its pages link to become part of the site, as `repository/...`.

So a page says `../ARCHITECTURE.md`, which works in the repository as well as on the site. What such a file links to itself comes
along. A link to a file that does not exist stays as it is, and MkDocs says that it is broken.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from mkdocs.utils.templates import TemplateContext

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = "repository/"
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
"""The target of a link or picture of Markdown that names no host."""
CONTENTS_MAX = 100
"""Headings of a page that are listed beside it. The page of settings has five times as many, and a filter instead."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is linked to, and what that links to."""
    unread = list(files.documentation_pages())
    while unread:
        page = unread.pop()
        for target in LINK.finditer(page.content_string):
            path = _repository_path(page.src_uri, target[2])
            uri = _uri(path)
            if files.get_file_from_path(uri) is None and uri.startswith(ELSEWHERE) and (ROOT / path).is_file():
                added = File.generated(config, uri, abs_src_path=str(ROOT / path), inclusion=InclusionLevel.NOT_IN_NAV)
                files.append(added)
                if added.is_documentation_page():
                    unread.append(added)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Give links the places that files have on the site."""
    here = page.file.src_uri

    def moved(link: re.Match[str]) -> str:
        uri = _uri(_repository_path(here, link[2]))
        known = files.get_file_from_path(uri) is not None
        return f"{link[1]}{posixpath.relpath(uri, posixpath.dirname(here) or '.') if known else link[2]}{link[3]}"

    return LINK.sub(moved, markdown)


@event_priority(-100)  # the index of the search needs all headings, and is made before
def on_page_context(context: TemplateContext, page: Page, config: MkDocsConfig, nav: Navigation) -> TemplateContext:
    """List only the sections of a page with very many headings, not what is in them."""
    sections = [section for title in page.toc for section in title.children]
    if sum(len(each.children) for each in sections) > CONTENTS_MAX:
        for section in sections:
            section.children.clear()
    return context


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Add two elements for the theme's script of colours, which ends with an error where its styles of highlighted code are left out."""
    return output.replace("</head>", '<meta id="hljs-light"><meta id="hljs-dark"></head>', 1)


def _repository_path(source: str, target: str) -> str:
    """What a link of this page of the site means, from the root of the repository."""
    own = source.removeprefix(ELSEWHERE) if source.startswith(ELSEWHERE) else f"docs/{source}"
    return posixpath.normpath(posixpath.join(posixpath.dirname(own), target))


def _uri(path: str) -> str:
    """Where a file of the repository is on the site, from the site's folder of sources."""
    return path.removeprefix("docs/") if path.startswith("docs/") else ELSEWHERE + path
