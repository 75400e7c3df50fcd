"""
The documentation site: links, search, and pages that look the same as on GitHub.

``make test-browser`` installs MkDocs; the tests build the site as ``make docs-site`` does.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from markdown_it import MarkdownIt
from selenium.webdriver.common.by import By

import policytool
from policytool.support import project
from tests.helpers.marks import ALONE
from tests.helpers.paths import ROOT
from tests.helpers.scripts import documentation_script

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from selenium.webdriver import Chrome

pytestmark = [pytest.mark.browser, ALONE]

DOCS: Final = ROOT / "docs"
PAGES: Final = tuple(
    sorted(
        path.relative_to(DOCS).as_posix()
        for path in DOCS.rglob("*.md")
        if not {"evidence", "generators", "json-keys.md"} & set(path.parts)
    )
)
WRITTEN: Final = tuple(page for page in PAGES if page != "reference/api.md")
"""The pages that GitHub shows complete: only the site has the docstrings of the Python API."""

LOOKED_AT: Final = ("", "tutorials/load-in-keras-3/", "reference/rules/", "reference/json/")
_FETCHED: Final = {"script": "src", "img": "src", "iframe": "src", "source": "src"}
_SECONDS: Final = 20.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the site; a warning of MkDocs is an error."""
    target = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", target],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
        timeout=300,
    )
    return target


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Return the address of a server of the site on this machine."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Write nothing to stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Html(HTMLParser):
    """The links, the anchors and the fetched files of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        self.anchors.add(values.get("id", ""))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "link" and values.get("rel") in {"stylesheet", "icon", "preload", "preconnect"}:
            self.fetched.append(values["href"])
        if values.get(_FETCHED.get(tag, "")):
            self.fetched.append(values[_FETCHED[tag]])


@pytest.fixture(scope="module")
def parsed(site: Path) -> dict[str, Html]:
    """Return every HTML file of the site by its path."""
    found = {}
    for path in sorted(site.rglob("*.html")):
        found[path.relative_to(site).as_posix()] = html = Html()
        html.feed(path.read_text(encoding="utf-8"))
    return found


def test_no_link_of_the_site_is_dead(site: Path, parsed: dict[str, Html]) -> None:
    """Each link within the site leads to a file, and each anchor to an element."""
    dead = []
    for page, html in parsed.items():
        for link in html.links:
            if urlsplit(link).scheme or page == "404.html":
                continue
            parts = urlsplit(urljoin(f"{project.SITE}{page}", link))
            target = unquote(parts.path).removeprefix("/")
            if not target or target.endswith("/"):
                target += "index.html"
            if not (site / target).is_file() or (
                parts.fragment and unquote(parts.fragment) not in parsed[target].anchors
            ):
                dead.append((page, link))
    assert len(parsed) > len(PAGES)
    assert not dead


def test_the_site_fetches_nothing_from_other_hosts(site: Path, parsed: dict[str, Html]) -> None:
    """Fonts, scripts and pictures are files of the site, so that it works offline."""
    assert not [
        (page, address)
        for page, html in parsed.items()
        for address in html.fetched
        if urlsplit(address).netloc
    ]
    for style in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import)\s*['\"]?https?:", style.read_text("utf-8")), style
    home = (site / "index.html").read_text(encoding="utf-8")
    assert 'data-md-component="source"' not in home  # it asks the host of the repository for stars


@pytest.mark.parametrize(
    ("link", "page", "expected"),
    [
        ("../../fixtures/README.md", "how-to/migrate.md", "fixtures/README.md"),
        ("../../SECURITY.md#report", "explanation/security.md", "SECURITY.md#report"),
        ("../how-to/notebook.ipynb", "reference/python.md", "docs/how-to/notebook.ipynb"),
        ("../../tests/", "how-to/migrate.md", "tests"),
        ("audit.md", "how-to/check.md", None),
        ("../index.md#use", "how-to/check.md", None),
        ("missing.md", "how-to/check.md", None),
        ("#use", "index.md", None),
        ("https://keras.io/api/", "index.md", None),
        ("mailto:someone@example.org", "index.md", None),
    ],
)
def test_links_that_leave_the_site_lead_to_the_repository(
    link: str, page: str, expected: str | None
) -> None:
    """MkDocs resolves all other links, and reports a missing file."""
    result = documentation_script("site_markdown").repository_link(link, page, PAGES)
    assert result == (None if expected is None else project.file(expected))


def test_built_pages_link_to_the_repository(parsed: dict[str, Html]) -> None:
    """The hook runs before MkDocs resolves links."""
    assert project.file("SECURITY.md") in parsed["explanation/security/index.html"].links
    assert project.file("docs/how-to/notebook.ipynb") in parsed["reference/python/index.html"].links


class Structure(HTMLParser):
    """The blocks, links and words of a page, as one list."""

    KEPT: Final = frozenset(
        {"li", "ul", "ol", "td", "th", "tr", "table", "h1", "h2", "h3", "h4", "pre", "a", "strong"}
        | {"em", "blockquote", "img"}
    )

    def __init__(self, *, is_site: bool) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._is_site = is_site
        self._is_content = not is_site
        self._is_permalink = False
        self._is_file_name = False
        self._text = ""

    def _end_text(self) -> None:
        text = " ".join(self._text.split())
        self._text = ""
        if text and self._is_content:
            self.parts.append(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._is_site and tag == "article":
            self._is_content, self._text = True, ""
        self._is_permalink = ("class", "headerlink") in attrs
        self._is_file_name = ("class", "filename") in attrs  # GitHub shows no title of a block
        if tag in self.KEPT and not self._is_permalink:
            self._end_text()
            self.parts += [f"<{tag}>"] * self._is_content

    def handle_endtag(self, tag: str) -> None:
        self._is_file_name = False
        if self._is_permalink:
            self._is_permalink, self._text = False, self._text.removesuffix("¶")
        elif tag in self.KEPT:
            self._end_text()
            self.parts += [f"</{tag}>"] * self._is_content
        elif self._is_site and tag == "article":
            self._end_text()
            self._is_content = False

    def handle_data(self, data: str) -> None:
        if not self._is_file_name:
            self._text += data


def structure(html: str, *, is_site: bool) -> list[str]:
    """Return the structure of a page."""
    result = Structure(is_site=is_site)
    result.feed(html)
    result.close()
    result._end_text()  # noqa: SLF001
    return result.parts


@pytest.mark.parametrize("page", WRITTEN)
def test_pages_look_the_same_as_on_github(site: Path, page: str) -> None:
    """Lists, tables, code and links are where CommonMark has them."""
    markdown = MarkdownIt("gfm-like", {"linkify": False})
    source = (DOCS / page).read_text(encoding="utf-8")
    built = site / page.removesuffix(".md").removesuffix("index") / "index.html"
    assert structure(built.read_text(encoding="utf-8"), is_site=True) == structure(
        markdown.render(source), is_site=False
    )


def test_api_page_has_every_public_name(parsed: dict[str, Html], site: Path) -> None:
    """The docstrings show neither fields nor roles of Sphinx."""
    anchors = parsed["reference/api/index.html"].anchors
    public = {name for name in policytool.__all__ if not name.startswith("_")}
    assert {f"policytool.{name}" for name in public} <= anchors
    text = (site / "reference/api/index.html").read_text(encoding="utf-8")
    assert not re.findall(r":(?:param|raises|return|\w+:`)[^<]*", text)


def test_search_finds_an_error_message(driver: Chrome, address: str) -> None:
    """The index of the site is complete, and its script runs."""
    driver.get(f"{address}reference/glossary/")
    driver.find_element(By.CSS_SELECTOR, "label.md-header__button[for='__search']")
    field = driver.find_element(By.CSS_SELECTOR, "input[name='query']")
    driver.execute_script("document.getElementById('__search').click()")
    ends = time.monotonic() + _SECONDS
    field.send_keys("quantization_mode")
    results: list[Any] = []
    while not results and time.monotonic() < ends:
        time.sleep(0.2)
        results = driver.find_elements(By.CSS_SELECTOR, "a.md-search-result__link")
    pages = {urlsplit(str(result.get_attribute("href"))).path for result in results}
    assert "/explanation/policies-and-dtypes/" in pages


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_fit_the_window_in_both_themes(
    driver: Chrome, address: str, width: int, theme: str
) -> None:
    """A wide table scrolls inside the page, and the theme is that of the system."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False},
    )
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": theme}]},
    )
    for page in LOOKED_AT:
        driver.get(address + page)
        driver.execute_script("localStorage.clear()")
        driver.refresh()
        shown = driver.execute_script(
            "return [document.documentElement.scrollWidth, document.body.dataset.mdColorScheme]"
        )
        assert shown[0] <= width, page
        assert shown[1] == {"light": "default", "dark": "slate"}[theme], page
