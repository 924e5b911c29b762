"""Judges how a page looks: whether it fits, and whether it is accessible, in each size and colour scheme."""

import os
from pathlib import Path
from typing import Final

from tests.browsers.tab import Tab

LOOKS: Final = {"light": (1200, 800, "light"), "dark": (1200, 800, "dark"), "mobile": (390, 844, "light")}
FOUND: Final = """
axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}).then(found =>
  found.violations.map(one => `${one.id}: ${one.nodes.map(node => node.html + node.failureSummary).join(" | ")}`))
"""
OUTSIDE: Final = """
[...document.querySelectorAll(".card *")].filter(one => one.checkVisibility() && !one.closest(".chart")
  && one.getBoundingClientRect().right > one.closest(".card").getBoundingClientRect().right).map(one => one.outerHTML)
"""


async def see(tab: Tab, axe: str, name: str, tmp_path: Path) -> None:
    """Judge the page in each look, and keep pictures of it where COUNTERSINK_SCREENSHOTS says."""
    folder = Path(os.environ.get("COUNTERSINK_SCREENSHOTS", tmp_path))
    for look, how in LOOKS.items():
        if how[2] == "dark" and not tab.has_schemes:
            continue
        await tab.looks(*how)
        await tab.picture(folder / f"{name}-{look}.png")
        assert await tab.run("document.documentElement.scrollWidth <= innerWidth"), f"{name} is too wide: {look}"
        assert await tab.run(OUTSIDE) == [], f"{name} sticks out of its card: {look}"
        assert await tab.run("typeof axe == 'object'") or await tab.run(f"{axe};true")
        assert await tab.run(FOUND) == [], (name, look)
