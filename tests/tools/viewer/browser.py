"""A Chromium that opens pages for tests, where there is one: it says what it drew, and whether anything went wrong."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1500,950",
)


class Page:
    """An open page of `nacre graph`."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def run(self, script: str) -> Any:
        return self.driver.execute_script(script)

    def open(self, path: Path) -> None:
        self.driver.get(path.as_uri())

    def one(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def box(self, path: str) -> Any:
        """The element of a box, or None where what is around it is folded."""
        return self.run(f"return elementOf({path!r})")

    def paths(self) -> list[str]:
        """The boxes that are drawn."""
        return list(self.run("return [...view.boxes.keys()]"))

    def stage(self, name: str) -> int:
        """The number of the first stage after a pass."""
        return int(self.run(f"return data.stages.findIndex((stage) => stage.name === {name!r})"))

    def press(self, *keys: str) -> None:
        """Keys as they reach the picture."""
        self.one("#view").send_keys(*keys)

    def crumbs(self) -> list[str]:
        return [button.text for button in self.driver.find_elements(By.CSS_SELECTOR, "#crumbs button")]

    def marked_lines(self) -> list[str]:
        return [line.text for line in self.driver.find_elements(By.CSS_SELECTOR, "#text li.at")]

    def complaints(self) -> list[str]:
        """What the browser wrote to its console."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@contextmanager
def open_browser(folder: Path) -> Iterator[Page]:
    """A browser that keeps what it writes in `folder`."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for flag in (*_FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # No proxy stands between a test and its browser.
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "localhost,127.0.0.1"
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield Page(driver)
    finally:
        driver.quit()
