"""The browser that the tests share: headless Chromium with its driver."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from selenium import webdriver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome


@pytest.fixture(scope="module")
def driver() -> Iterator[Chrome]:
    """Return a browser without background requests."""
    options = webdriver.ChromeOptions()
    for argument in (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser, server = shutil.which("chromium"), shutil.which("chromedriver")
    assert browser is not None, "install Chromium (the package chromium)"
    assert server is not None, "install ChromeDriver (the package chromium-driver)"
    options.binary_location = browser
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(server)) as found:
        yield found
