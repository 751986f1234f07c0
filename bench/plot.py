"""Bars of each figure against its limit, as SVG; readable on light and dark pages.

    plot.py SUMMARY.json [OUT.svg]          default: beside the JSON

A bar that reaches the line has what was asked for; where less is better it is the limit over the measured value.
"""

import json
import pathlib
import sys
from xml.sax.saxutils import escape

WIDTH, LEFT, BAR, ROW = 920, 380, 340, 22  # pixels
LONGEST = 1.6  # limits; a longer bar is cut off
GREEN, RED, INK = "#2da44e", "#d1242f", "#768390"  # INK: enough contrast on white and on black


def of_limit(figure: dict) -> float | None:
    """1 where the limit is just reached, more where the figure is better; None where nothing counts as measured."""
    measured = figure["measured"]
    if measured is None or figure["state"] == "wrong" or measured <= 0:
        return None
    return figure["limit"] / measured if figure["at_most"] else measured / figure["limit"]


def draw(summary: dict) -> str:
    lines, y, last = [], 34, None
    unit = BAR / LONGEST

    def text(x, height, what, anchor="start", weight="normal"):
        lines.append(f'<text x="{x:g}" y="{height:g}" text-anchor="{anchor}" font-weight="{weight}">{escape(what)}</text>')

    for figure in summary["figures"]:
        if figure["subject"] != last:
            y += 10 if last is not None else 0
            text(8, y + 14, figure["subject"], weight="bold")
            last = figure["subject"]
        text(LEFT - 8, y + 14, figure["figure"], "end")
        share = of_limit(figure)
        sign = "≤" if figure["at_most"] else "≥"
        asked = f"{sign} {figure['limit']:g} {figure['unit']}".rstrip()
        if share is None:
            text(LEFT + 8, y + 14, "wrong outputs" if figure["state"] == "wrong" else "not measured")
            text(WIDTH - 8, y + 14, f"({asked})", "end")
        else:
            colour = GREEN if figure["reached"] else RED
            length = min(share, LONGEST) * unit
            lines.append(f'<rect x="{LEFT}" y="{y + 3}" width="{length:.1f}" height="{ROW - 7}" rx="2" fill="{colour}"/>')
            if share > LONGEST:
                text(LEFT + length + 4, y + 14, "»")
            text(WIDTH - 8, y + 14, f"{figure['measured']:.3g} {figure['unit']} ({asked})", "end")
        y += ROW
    limit = LEFT + unit
    height = y + 34
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" fill="{INK}">',
        f'<text x="{limit:g}" y="16" text-anchor="middle">asked for</text>',
        f'<line x1="{limit:g}" y1="22" x2="{limit:g}" y2="{y + 4}" stroke="{INK}" stroke-width="1.5" stroke-dasharray="4 3"/>',
        *lines,
        f'<text x="8" y="{height - 10}" font-size="11">{escape(summary["machine"])}, commit {escape(summary["commit"])}, '
        f'{escape(summary["date"])}</text>',
        "</svg>",
    ]) + "\n"


def main():
    source = pathlib.Path(sys.argv[1])
    target = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else source.with_suffix(".svg")
    target.write_text(draw(json.loads(source.read_text())))
    print(target)


if __name__ == "__main__":
    main()
