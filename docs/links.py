"""Check that each link of a built site leads to a page, a picture or a heading that exists.

``python docs/links.py docs/_build/html`` is a part of ``make docs``. Sphinx itself warns of missing
pages and targets, but not of addresses in raw HTML or in the output of extensions.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Templates of the theme, and the list of modules with source code, among which viewcode counts
# builtins.
SKIPPED = ("_static/", "_modules/index.html")


class Page(HTMLParser):
    """The links of a page, the anchors in it, and the metadata with its address."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.about: dict[str, str] = {}
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        self.links |= {given[name] for name in ("href", "src") if name in given}
        if tag == "meta" and "property" in given:
            self.about[given["property"]] = given.get("content", "")


def broken(site: Path) -> list[str]:
    """Return each broken link of the site, with the page that contains it."""
    site = site.resolve()
    pages = {file: Page(file) for file in sorted(site.rglob("*.html"))}
    found = []
    for file, page in pages.items():
        name = file.relative_to(site).as_posix()
        if name.startswith(SKIPPED):
            continue
        # The preview picture of the page has an absolute address.
        home = page.about.get("og:url", "").removesuffix(name)
        links = page.links
        if home:
            links = links | {page.about.get("og:image", "").replace(home, "/", 1)}
        for link in sorted(links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            path = unquote(parts.path)
            target = site / path[1:] if path.startswith("/") else file.parent / path
            target = target.resolve() if path else file
            if target.is_dir():
                target /= "index.html"
            anchor = unquote(parts.fragment)
            if not target.exists():
                found.append(f"{name}: {link} does not exist")
            elif anchor and target in pages and anchor not in pages[target].ids:
                found.append(f"{name}: {link} has no such anchor")
    if not pages:
        found.append(f"{site} has no pages")
    return found


if __name__ == "__main__":
    sys.exit("\n".join(broken(Path(sys.argv[1]))) or None)
