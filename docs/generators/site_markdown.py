r"""
A hook of MkDocs: pages that are written for GitHub look the same on the site.

A page links to a file by its relative path. If the file is not on the site, such as
``../../fixtures/README.md``, the link on the site leads to the file in the repository. Python's
Markdown would show the backslash of ``\|`` in the code of a table, and of ``\<`` anywhere. Short
code, such as an option, stays on one line. Commands without a prompt are highlighted as a script,
because Pygments takes them for output.
"""

from __future__ import annotations

import posixpath
import re
import string
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString

from policytool.support import project

if TYPE_CHECKING:
    from collections.abc import Collection
    from xml.etree.ElementTree import Element

    from markdown import Markdown
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parent.parent.parent

BEFORE_MKDOCS: Final = 10
"""MkDocs resolves links with priority 0, and higher priorities run first."""


SHORT: Final = 32
"""Characters of code that fit on a line of a narrow screen."""


_CONSOLE: Final = re.compile(
    r"^( *```)console$(?=(?:\n(?! *(?:```|\$ )).*)*\n *```$)", re.MULTILINE
)
"""The beginning of a block of commands in which no line has a prompt."""


def repository_link(link: str, page: str, on_site: Collection[str]) -> str | None:
    """
    Return the address of a linked file in the repository, or None if the link stays as it is.

    :param link: the link in the Markdown
    :param page: the path of the page that contains the link, relative to ``docs``
    :param on_site: the paths of all files of the site, relative to ``docs``
    """
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or not parts.path:
        return None
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), parts.path))
    if path.removeprefix("docs/") in on_site or not (ROOT / path).exists():
        return None  # MkDocs reports a link to a missing file
    address = project.file(path)
    return f"{address}#{parts.fragment}" if parts.fragment else address


class SiteMarkdown(Treeprocessor):
    """Changes the links and the tables of one page."""

    page: str = ""
    on_site: Collection[str] = ()

    def run(self, root: Element) -> None:
        """Change the tree of the page."""
        for link in root.iter("a"):
            address = repository_link(link.get("href", ""), self.page, self.on_site)
            if address is not None:
                link.set("href", address)
        for row in root.iter("tr"):
            for code in row.iter("code"):
                code.text = AtomicString((code.text or "").replace(r"\|", "|"))
        for code in root.iter("code"):
            if len(code.text or "") <= SHORT:
                code.set("class", "short")


class SiteMarkdownExtension(Extension):
    """Adds :data:`PROCESSOR` to the Markdown of MkDocs."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802  # Markdown's name
        """Register the processor, and allow a backslash before every punctuation character."""
        md.ESCAPED_CHARS = list(string.punctuation)
        md.treeprocessors.register(PROCESSOR, "site_markdown", BEFORE_MKDOCS)


PROCESSOR: Final = SiteMarkdown()
"""One processor for all pages, because MkDocs renders them one after the other."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the extension."""
    config.markdown_extensions.append(SiteMarkdownExtension())  # type: ignore[arg-type]
    return config


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_: object) -> str:
    """Prepare the processor for the next page."""
    PROCESSOR.page = page.file.src_uri
    PROCESSOR.on_site = frozenset(file.src_uri for file in files if file.inclusion.is_included())
    return _CONSOLE.sub(r"\1bash", markdown)
