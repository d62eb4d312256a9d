"""A run as one HTML file: tables and pictures inside, nothing to load from elsewhere."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path

from benchmarks import plots
from benchmarks.machine import in_a_line
from benchmarks.results import Run
from benchmarks.row import RIGHT, Row, table

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; color: #1e293b }
table { border-collapse: collapse; margin: 1rem 0; font-size: 13px }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #e2e8f0; text-align: left; vertical-align: top }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
img { max-width: 100% }
h2 { margin-top: 2.5rem }
"""


def write_html(run: Run, path: Path) -> None:
    pictures = "".join(
        f'<p><img alt="{escape(name)}" src="data:image/png;base64,{base64.b64encode(png).decode()}"></p>'
        for name, png in plots.draw(run).items()
    )
    tables = "".join(f"<h2>{escape(suite)}</h2>{_table(rows)}" for suite, rows in run["results"].items())
    path.write_text(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>FlyMQ benchmarks</title><style>{_STYLE}</style>"
        f"<h1>FlyMQ benchmarks</h1><p>{escape(in_a_line(run['machine']))}</p>{pictures}{tables}</html>\n"
    )


def _table(rows: list[Row]) -> str:
    headings, *body = table(rows)
    kinds = [' class="number"' if name in RIGHT else "" for name in headings]
    head = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, headings, strict=True))
    lines = ("".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, line, strict=True)) for line in body)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
