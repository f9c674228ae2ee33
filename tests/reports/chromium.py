"""A page in a real browser, Debian's Chromium with Selenium: for the tests of pages and for their benchmark."""
from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from selenium import webdriver

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
             "--disable-background-networking", "--disable-component-update", "--window-size=1200,900")
MISSING = """
return [...document.querySelectorAll('a[href^="#"]')].map(a => decodeURIComponent(a.hash.slice(1)))
    .filter(id => !document.getElementById(id));
"""
# Texts whose contrast with their background is less than the 4.5 of WCAG AA.
FAINT = """
const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(v => (v /= 255) <= .03928 ? v / 12.92
    : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (!c.endsWith(", 0)") && c !== "transparent") return c; } return "rgb(255, 255, 255)"; };
return [...document.querySelectorAll("p, span, td, th, a, summary, b, li, h1, h2")].filter(e => {
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
    return e.textContent.trim() && (a + .05) / (b + .05) < 4.5; }).map(e => e.outerHTML.slice(0, 100));
"""
UNFOLD = """
document.querySelectorAll('details').forEach(fold => fold.open = true);
return document.querySelectorAll('[data-html], [data-packed]').length;
"""


def launch(profile: Path) -> Any:
    """A browser with its profile in that folder."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))


def opened(driver: Any, url: str) -> float:
    """Seconds from the start of the navigation until the page is loaded and laid out."""
    driver.get("about:blank")
    driver.get(url)
    return float(driver.execute_script("""
        const begun = performance.now(), loaded = performance.getEntriesByType("navigation")[0].loadEventEnd;
        document.documentElement.scrollHeight;      // lays the page out
        return loaded + performance.now() - begun;
    """)) / 1000


def as_wide_as(driver: Any, width: int) -> int:
    """The width that the page takes on a screen of ``width`` pixels."""
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                           {"width": width, "height": 800, "deviceScaleFactor": 2, "mobile": True})
    return int(driver.execute_script("return document.documentElement.scrollWidth"))


def in_scheme(driver: Any, scheme: str) -> None:
    """Show the page as for users who prefer ``light`` or ``dark``."""
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                           {"features": [{"name": "prefers-color-scheme", "value": scheme}]})


def as_usual(driver: Any) -> None:
    """Undo ``as_wide_as`` and ``in_scheme``."""
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def unfold(driver: Any) -> None:
    """Open all folds, and wait until what was compressed in them is there."""
    while driver.execute_script(UNFOLD):
        time.sleep(0.02)
    driver.execute_script(UNFOLD)       # the folds in what was unpacked last


def faint_texts(driver: Any) -> list[str]:
    return list(driver.execute_script(FAINT))


def missing_targets(driver: Any) -> list[str]:
    """Links within the page that lead nowhere."""
    return list(driver.execute_script(MISSING))


def errors(driver: Any) -> list[str]:
    """Errors of the page's scripts since the last question."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
