"""
HTML reports in a real browser: headless Chromium with its driver, and the rules of axe-core.

``make test-browser`` installs axe-core; Chromium and ChromeDriver are packages of the system.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from policytool.reports.layout import clean
from tests.helpers import example_pages
from tests.helpers.example_pages import HOSTILE, LONG, PAGES
from tests.helpers.marks import ALONE

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = [pytest.mark.browser, ALONE]

AXE: Final = Path(__file__).parent / "node_modules/axe-core/axe.min.js"
WIDTHS: Final = (400, 1400)
THEMES: Final = ("light", "dark")
_SECOND: Final = 1.0


def console(driver: Chrome) -> list[str]:
    """Return what the browser's console shows."""
    entries = driver.get_log("browser")  # type: ignore[no-untyped-call]
    return [entry["message"] for entry in entries]


@pytest.fixture
def show(driver: Chrome, tmp_path: Path) -> Any:
    """Return what opens a page of a name in a width and a theme."""

    def opened(name: str, width: int = 1400, theme: str = "light", media: str = "screen") -> Chrome:
        path = tmp_path / "page.html"
        path.write_bytes(example_pages.page(name).encode("utf-8", "backslashreplace"))
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )
        features = [{"name": "prefers-color-scheme", "value": theme}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
        driver.get(path.as_uri())
        return driver

    return opened


def shown_rows(driver: Chrome) -> list[str]:
    """Return the first cells of the rows that are not hidden."""
    result: list[str] = driver.execute_script(
        "return [...document.querySelectorAll('tbody tr:not([hidden]) th')]"
        ".map(cell => cell.textContent)"
    )
    return result


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", [name for name in PAGES if not name.startswith("long")])
def test_page_has_no_accessibility_violation(show: Any, name: str, width: int, theme: str) -> None:
    """No rule of axe-core fails, the page fits the width, and the console is empty."""
    driver = show(name, width, theme)
    assert console(driver) == []
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    driver.execute_script(AXE.read_text(encoding="utf-8"))
    result = driver.execute_async_script(
        "const done = arguments[0]; axe.run().then(result => done(result.violations.map("
        "one => [one.id, one.help, one.nodes.slice(0, 3).map(node => node.html)])))"
    )
    assert result == []


@pytest.mark.parametrize("name", PAGES)
def test_page_loads_nothing_else(show: Any, name: str) -> None:
    """The page is the only resource, and no name from a model has run."""
    driver = show(name)
    assert driver.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert driver.execute_script("return window.hit") is None
    assert console(driver) == []


def test_hostile_names_are_shown_as_text(show: Any) -> None:
    """Each name is in its row; a script that a name could add would not run either."""
    driver = show("hostile")
    rows = shown_rows(driver)
    assert rows[1:] == [f"net/{clean(name.replace('/', '~1'))}" for name in HOSTILE]
    driver.execute_script(
        "const added = document.createElement('script');"
        "added.textContent = 'window.hit = 1'; document.body.append(added);"
    )
    assert driver.execute_script("return window.hit") is None
    assert "Content Security Policy" in console(driver)[0]


def test_search_shows_matches_and_their_parents(show: Any) -> None:
    """All words must match, and the count contains only matches."""
    driver = show("long")
    field = driver.find_element(By.CSS_SELECTOR, "input[type=search]")
    field.send_keys("DENSE_42 block_4/")
    assert shown_rows(driver) == ["net", "net/block_4", "net/block_4/dense_42"]
    output = driver.find_element(By.CSS_SELECTOR, ".tools output")
    assert output.text == f"1 of {LONG}"
    field.send_keys(" nothing has this")
    assert shown_rows(driver) == []
    field.clear()
    field.send_keys(" " + Keys.BACKSPACE)
    assert len(shown_rows(driver)) == LONG
    assert output.text == ""


def test_filter_shows_rows_with_a_text(show: Any) -> None:
    """A filter compares a whole cell, and goes together with the search."""
    driver = show("long")
    policy = driver.find_element(By.CSS_SELECTOR, "select")
    policy.send_keys("float16")
    assert all(
        row.endswith(tuple(f"dense_{number}" for number in range(0, LONG, 7))) or "dense" not in row
        for row in shown_rows(driver)
    )
    driver.find_element(By.CSS_SELECTOR, "input[type=search]").send_keys("dense_7")
    assert "net/block_0/dense_7" in shown_rows(driver)
    assert "net/block_0/dense_8" not in shown_rows(driver)


def test_equal_blocks_open(show: Any) -> None:
    """A block that equals another one is one row, whose button shows its layers."""
    driver = show("repeated")
    assert shown_rows(driver)[-1].startswith("block_1 to block_24: like block_0")
    button = driver.find_element(By.CSS_SELECTOR, "button.fold")
    assert button.get_attribute("aria-expanded") == "false"
    button.send_keys(Keys.ENTER)
    assert button.get_attribute("aria-expanded") == "true"
    assert shown_rows(driver)[-1].endswith("block_24/dense_8")
    driver.find_element(By.CSS_SELECTOR, "input[type=search]").send_keys("block_7/dense_3")
    assert shown_rows(driver)[-1].endswith("block_7/dense_3")
    button.send_keys(Keys.ENTER)
    assert shown_rows(driver)[-1].endswith("block_7/dense_3")


def test_rows_are_sorted_by_a_column(show: Any) -> None:
    """The largest numbers are first; a second click reverses, and a third one restores."""
    driver = show("repeated")
    before = shown_rows(driver)
    header = driver.find_element(By.XPATH, "//th[.='parameters']")
    header.find_element(By.TAG_NAME, "button").click()
    assert header.get_attribute("aria-sort") == "descending"
    rows = shown_rows(driver)
    assert len(rows) == 251
    assert all(row.endswith("dense_8") for row in rows[26:51])
    header.find_element(By.TAG_NAME, "button").click()
    assert shown_rows(driver)[0].endswith("dense_1")
    header.find_element(By.TAG_NAME, "button").click()
    assert header.get_attribute("aria-sort") is None
    assert shown_rows(driver) == before


def test_page_of_a_thousand_layers_is_usable_in_a_second(show: Any) -> None:
    """The page and the result of a search appear within a second."""
    driver = show("long")
    loaded = driver.execute_script(
        "const [entry] = performance.getEntriesByType('navigation'); return entry.loadEventEnd"
    )
    assert 0 < loaded < 1000 * _SECOND
    start = time.perf_counter()
    driver.find_element(By.CSS_SELECTOR, "input[type=search]").send_keys("dense_998")
    assert shown_rows(driver)[-1] == "net/block_99/dense_998"
    assert time.perf_counter() - start < _SECOND


def test_keyboard_reaches_every_control(show: Any) -> None:
    """Tab goes through search and filters to the table, and the focus can be seen."""
    driver = show("long")
    reached = []
    for _ in range(8):
        driver.switch_to.active_element.send_keys(Keys.TAB)
        element = driver.switch_to.active_element
        reached.append(element.tag_name)
        if element.tag_name == "div":
            break
        assert element.value_of_css_property("outline-style") != "none"
    assert reached[0] == "input"
    assert set(reached[1:-1]) == {"select"}
    assert reached[-1] == "div"


def test_graph_is_searched_and_opened_with_the_keyboard(show: Any) -> None:
    """The page draws each layer, a search marks layers, and Enter shows the details of one."""
    driver = show("hostile graph")
    assert len(driver.find_elements(By.CSS_SELECTOR, ".node")) == len(HOSTILE)
    assert len(driver.find_elements(By.CSS_SELECTOR, ".edge")) == len(HOSTILE) - 1
    driver.find_element(By.CSS_SELECTOR, ".graph input").send_keys("float16")
    assert driver.find_element(By.CSS_SELECTOR, ".graph output").text == "3 found"
    assert len(driver.find_elements(By.CSS_SELECTOR, ".node.match")) == 3
    driver.find_element(By.CSS_SELECTOR, ".view").send_keys(Keys.TAB)
    driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert clean(HOSTILE[2]) in driver.find_element(By.CSS_SELECTOR, ".graph .details").text


def test_graph_of_a_thousand_layers_is_usable_in_a_second(show: Any) -> None:
    """All blocks open, and a search finds a layer, within a second each."""
    driver = show("long graph")
    assert len(driver.find_elements(By.CSS_SELECTOR, ".node")) == LONG / 10
    for action, value in ((".graph button:nth-of-type(4)", None), (".graph input", "dense_998")):
        duration = driver.execute_script(
            "const control = document.querySelector(arguments[0]), start = performance.now();"
            "if (arguments[1]) control.value = arguments[1];"
            "arguments[1] ? control.dispatchEvent(new Event('input')) : control.click();"
            "control.getBoundingClientRect(); return performance.now() - start",
            action,
            value,
        )
        assert 0 < duration < 1000 * _SECOND
    assert len(driver.find_elements(By.CSS_SELECTOR, ".node")) == LONG * 1.1
    assert len(driver.find_elements(By.CSS_SELECTOR, ".node.match")) == 1


def test_graph_is_drawn_when_it_comes_into_view(show: Any) -> None:
    """A page of many models draws only graphs that were in view."""
    driver = show("inspect")
    last = driver.find_elements(By.CSS_SELECTOR, ".graph")[-1]
    assert not last.find_elements(By.CSS_SELECTOR, ".node")
    driver.execute_script("arguments[0].scrollIntoView()", last)
    WebDriverWait(driver, 10).until(lambda _: last.find_elements(By.CSS_SELECTOR, ".node"))


def test_command_is_copied(show: Any) -> None:
    """The button next to a command copies it."""
    driver = show("check")
    command = driver.find_element(By.CSS_SELECTOR, ".command")
    button = command.find_element(By.TAG_NAME, "button")
    button.click()
    assert button.text == "Copied"
    selected = driver.execute_script("return getSelection().toString()")
    assert selected == command.find_element(By.TAG_NAME, "code").text


def test_themes_differ_and_print_is_light(show: Any) -> None:
    """Dark follows the system; paper is white, without controls."""
    backgrounds = {
        theme: show("long", theme=theme)
        .find_element(By.TAG_NAME, "body")
        .value_of_css_property("background-color")
        for theme in THEMES
    }
    assert backgrounds["light"] != backgrounds["dark"]
    driver = show("long", theme="dark", media="print")
    body = driver.find_element(By.TAG_NAME, "body")
    assert body.value_of_css_property("background-color") == "rgba(255, 255, 255, 1)"
    assert not driver.find_element(By.CSS_SELECTOR, ".tools").is_displayed()


def test_index_links_to_pages(driver: Chrome, tmp_path: Path) -> None:
    """Every link of a directory's index opens a page with that model's name."""
    for name, text in example_pages.files().items():
        (tmp_path / name).write_bytes(text.encode("utf-8", "backslashreplace"))
    index = (tmp_path / "index.html").as_uri()
    driver.get(index)
    count = len(driver.find_elements(By.CSS_SELECTOR, "td, tbody a"))
    assert count
    for number in range(len(driver.find_elements(By.TAG_NAME, "a"))):
        driver.get(index)
        link = driver.find_elements(By.TAG_NAME, "a")[number]
        shown = link.text
        link.click()
        assert driver.find_element(By.TAG_NAME, "h2").text == shown
    assert console(driver) == []
