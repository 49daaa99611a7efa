"""The system's Chromium without a window, and what tests ask of it. Its driver speaks to it on this machine alone."""

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
# One question for all elements: to ask for the text of each takes longer than anything else a test does.
_MATCHING = """
const [selector, text] = arguments;
for (const each of document.querySelectorAll(selector)) {
  if (each.checkVisibility() && !each.disabled && (text === null || each.innerText.trim() === text)) return each;
}
return null;
"""
_SHOWS = "const shown = document.body.innerText; return arguments[0].every((each) => shown.includes(each));"
_FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex='0']"
# Notes where the focus goes, among what is seen and can have it, by their numbers in the document.
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
    """A part of the page as a screen reader is told of it."""

    role: str
    name: str
    more: dict[str, Any]
    """Its properties, such as focusable, level, live."""


class Browser:
    """One window. Everything is waited for; each wait is long, because the machine may be busy."""

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
        """The size of the window, and whether the user likes it dark."""
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    def open(self, address: str) -> None:
        """A page as if it were asked for the first time."""
        self.driver.get("about:blank")
        self.driver.get(address)

    def picture(self, name: str) -> bytes:
        """Keep what is seen as a PNG."""
        self._pictures.mkdir(parents=True, exist_ok=True)
        data = bytes(self.driver.get_screenshot_as_png())
        (self._pictures / f"{name}.png").write_bytes(data)
        return data

    def until(self, probe: Callable[[], T], what: str) -> T:
        """The probe's first true answer; an element that was just replaced is looked for again."""
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
        """All that is seen of the view."""
        return str(self.driver.execute_script("return document.body.innerText"))

    def see(self, *texts: str) -> None:
        self.until(lambda: self.run(_SHOWS, texts), f"the page shows {texts}")

    def find(self, selector: str) -> WebElement:
        return self.until(lambda: self.driver.find_element(By.CSS_SELECTOR, selector), selector)

    def click(self, selector: str, text: str | None = None) -> None:
        """Click the first such element that has this text."""

        def clicked() -> bool:
            found = self.run(_MATCHING, selector, text)
            if found is not None:
                found.click()
            return found is not None

        self.until(clicked, f"{selector} {text or ''} can be clicked")

    def quiet(self) -> None:
        """Wait until the page has looked the same for half a second, or for three seconds: some pages never do."""
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
        """What a screen reader is told of the page, in its order."""
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
        """Where Tab leads from the first control on, by the numbers of what can be focused; how many presses that were."""
        steps = min(steps_max, int(self.run(_WATCH_FOCUS, _FOCUSABLE)) - 1)
        self.driver.switch_to.active_element.send_keys(Keys.TAB * steps)
        return [int(each) for each in self.run("return window.focusOrder")], steps

    def complaints(self) -> list[str]:
        """What the browser has logged since it was last asked: errors of scripts, and what the policy forbade."""
        return [json.dumps(each) for each in self.driver.get_log("browser") if each["level"] == "SEVERE"]
