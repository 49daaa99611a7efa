"""Driver of the system's Chromium without a window, for tests of web pages. Nothing is looked up or downloaded."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
WIDE, NARROW = (1200, 900), (390, 844)
FAR_S = 60
_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--lang=en",
    "--hide-scrollbars",
    # What a browser does beside showing pages.
    "--no-first-run",
    "--disable-extensions",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
)
# One request for all elements, because a request for the text of each one would take longer than the rest of a test.
_MATCHING = """
const [selector, text] = arguments;
for (const each of document.querySelectorAll(selector)) {
  if (each.checkVisibility() && !each.disabled && (text === null || each.innerText.trim() === text)) return each;
}
return null;
"""
_SHOWS = "const shown = document.body.innerText; return arguments[0].every((each) => shown.includes(each));"
_FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex='0']"
# Records which elements get the focus, by their positions among the visible elements that can have it.
_WATCH_FOCUS = """
window.focusOrder = [];
window.focusWatch?.abort();
window.focusWatch = new AbortController();
const focusable = () => [...document.querySelectorAll(arguments[0])].filter((each) => each.checkVisibility() && !each.disabled);
document.addEventListener("focusin", (event) => {
  const all = focusable();
  if (all.includes(event.target)) window.focusOrder.push(all.indexOf(event.target));
}, { signal: window.focusWatch.signal });
focusable()[0].focus();
return focusable().length;
"""

T = TypeVar("T")


class Accessible(NamedTuple):
    """Element of the page's accessibility tree, which screen readers read."""

    role: str
    name: str
    more: dict[str, Any]
    """Its properties, such as focusable, level, live."""


class Browser:
    """Browser window. Its methods wait for elements and texts up to FAR_S seconds, because the machine may be busy."""

    def __init__(self, pictures: Path) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM or ""
        for each in _ARGUMENTS:
            options.add_argument(each)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        # The path of the driver is given, so nothing is looked up or downloaded.
        self.driver = webdriver.Chrome(
            options=options, service=Service(DRIVER, env={**os.environ, "SE_OFFLINE": "true"})
        )
        self._pictures = pictures
        self.look()

    def close(self) -> None:
        self.driver.quit()

    def look(self, size: tuple[int, int] = WIDE, scheme: str = "light") -> None:
        """Set the size of the window and the preferred colour scheme."""
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    def open(self, address: str) -> None:
        """Load a page anew, even if only the fragment of its address differs."""
        self.driver.get("about:blank")
        self.driver.get(address)

    def picture(self, name: str) -> bytes:
        """Save a screenshot as PNG; return its bytes."""
        self._pictures.mkdir(parents=True, exist_ok=True)
        data = bytes(self.driver.get_screenshot_as_png())
        (self._pictures / f"{name}.png").write_bytes(data)
        return data

    def until(self, probe: Callable[[], T], what: str) -> T:
        """Call `probe` until it returns something true, and return that. Elements that were just replaced are searched again."""
        deadline = time.monotonic() + FAR_S
        while True:
            try:
                if answer := probe():
                    return answer
            except (StaleElementReferenceException, WebDriverException) as error:
                if not isinstance(error, StaleElementReferenceException) and "no such element" not in str(error):
                    raise
            assert time.monotonic() < deadline, f"not within {FAR_S} s: {what}; the page says {self.text!r}"
            time.sleep(0.05)

    @property
    def text(self) -> str:
        """Visible text of the page."""
        return str(self.driver.execute_script("return document.body.innerText"))

    def see(self, *texts: str) -> None:
        self.until(lambda: self.run(_SHOWS, texts), f"the page shows {texts}")

    def find(self, selector: str) -> WebElement:
        return self.until(lambda: self.driver.find_element(By.CSS_SELECTOR, selector), selector)

    def click(self, selector: str, text: str | None = None) -> None:
        """Click the first visible element that matches `selector` and has this text."""

        def clicked() -> bool:
            found = self.run(_MATCHING, selector, text)
            if found is not None:
                found.click()
            return found is not None

        self.until(clicked, f"{selector} {text or ''} can be clicked")

    def quiet(self) -> None:
        """Wait until the text has not changed for half a second; at most three seconds, because some pages always change."""
        seen = [self.text]
        while len(seen) < 60 and not (len(seen) > 10 and len(set(seen[-10:])) == 1):
            time.sleep(0.05)
            seen.append(self.text)

    def fill(self, selector: str, text: str) -> None:
        field = self.find(selector)
        field.clear()
        field.send_keys(text)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def accessible(self) -> list[Accessible]:
        """Return the accessibility tree in reading order."""
        nodes = self.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        by_id = {each["nodeId"]: each for each in nodes}
        found, left = [], [nodes[0]["nodeId"]]
        while left:
            node = by_id.get(left.pop())
            if node is None:
                continue
            left += reversed(node.get("childIds", ()))
            if not node["ignored"]:
                more = {each["name"]: each["value"].get("value") for each in node.get("properties", ())}
                found.append(Accessible(node["role"]["value"], node.get("name", {}).get("value", "").strip(), more))
        return found

    def focus_order(self, steps_max: int) -> tuple[list[int], int]:
        """Press Tab from the first control on; return the positions of the focused controls, and the number of presses."""
        steps = min(steps_max, int(self.run(_WATCH_FOCUS, _FOCUSABLE)) - 1)
        self.driver.switch_to.active_element.send_keys(Keys.TAB * steps)
        return [int(each) for each in self.run("return window.focusOrder")], steps

    def complaints(self) -> list[str]:
        """Return the errors that the browser has logged since the last call: of scripts and of the security policy."""
        return [json.dumps(each) for each in self.driver.get_log("browser") if each["level"] == "SEVERE"]
