"""The page: one self-contained file with its data, styles and scripts, which needs no network."""

from __future__ import annotations

import json
from html import escape
from string import Template

from .assets import read_asset
from .data import Json

STYLES = ("graph.css", "page.css")
SCRIPTS = ("geometry.js", "view.js", "panel.js", "weights.js", "roofline.js", "search.js", "page.js", "export.js")
"""The scripts, in the order of their dependences."""


def format_page(data: Json, title: str) -> str:
    # Inside a script element only `</script` ends it, and `<!--` starts an escaped state: both contain `<`.
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    scripts = "\n".join(f"<script>\n{read_asset(name)}</script>" for name in SCRIPTS)
    styles = "\n".join(map(read_asset, STYLES))
    return Template(read_asset("page.html")).substitute(title=escape(title), style=styles, data=text, scripts=scripts)
