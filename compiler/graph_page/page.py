"""The page: one file with its data, styles and scripts in it, which asks nothing of a network."""

from __future__ import annotations

import json
from html import escape
from string import Template

from .assets import read_asset
from .data import Json

STYLES = ("graph.css", "page.css")
SCRIPTS = ("geometry.js", "view.js", "panel.js", "roofline.js", "search.js", "page.js")
"""In the order in which they use each other."""


def format_page(data: Json, title: str) -> str:
    # Inside of a script element nothing ends it but `</script`, and `<!--` begins something else.
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    scripts = "\n".join(f"<script>\n{read_asset(name)}</script>" for name in SCRIPTS)
    styles = "\n".join(map(read_asset, STYLES))
    return Template(read_asset("page.html")).substitute(title=escape(title), style=styles, data=text, scripts=scripts)
