"""The frame of an HTML page: style sheet, escaping, tables, figures. No scripts, no links out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from matplotlib.figure import Figure

from tacit.files import make_folder, replace
from tacit.report.svg import FONT, SLIM, WIDE, svg

# The policy stops a browser from running or fetching anything, should escaping ever fail.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

STYLE = (
    """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1d2429; --muted: #5c6770;
  --grid: #e2e6e9; --soft: #f5f7f8; --gain: #0072b2; --loss: #c25500; --spent: #8a4f9e;
  --green: #00684a; --green-soft: #eaf6f1; --amber: #8f5200; --amber-soft: #fff4df;
  --red: #a8201a; --red-soft: #fdecea; --shade: #1d242940; }
@media screen and (prefers-color-scheme: dark) { :root {
  --paper: #15191c; --ink: #e6eaed; --muted: #a0abb4;
  --grid: #2f373d; --soft: #1d2327; --gain: #56b4e9; --loss: #f0914a; --spent: #c79bd6;
  --green: #5fd0a8; --green-soft: #12291f; --amber: #f5b756; --amber-soft: #2e220d;
  --red: #ff8f86; --red-soft: #331614; --shade: #000000b0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 FONT; }
main { max-width: 960px; margin: 0 auto; padding: 40px 28px 64px; }
h1 { font-size: 30px; line-height: 1.2; margin: 0 0 4px; letter-spacing: -0.01em; }
h2 { font-size: 21px; line-height: 1.3; margin: 48px 0 10px; }
h3 { font-size: 17px; line-height: 1.3; margin: 30px 0 8px; }
p { margin: 0 0 12px; max-width: 88ch; }
.sub { color: var(--muted); margin-bottom: 24px; }
.note { color: var(--muted); font-size: 14px; max-width: 110ch; }
.uncovered { border-left: 3px solid var(--muted); padding: 1px 0 1px 12px; margin: 20px 0 16px;
  color: var(--muted); font-size: 14px; max-width: none; }
.uncovered b { color: var(--ink); }
.covered { border-left: 3px solid var(--green); padding: 1px 0 1px 12px; margin-bottom: 16px;
  color: var(--green); font-size: 14px; max-width: none; }
.box { --tone: var(--green); --wash: var(--green-soft); border: 2px solid var(--tone);
  border-radius: 10px; overflow: hidden; }
.box.amber { --tone: var(--amber); --wash: var(--amber-soft); }
.box.red { --tone: var(--red); --wash: var(--red-soft); }
.verdict { background: var(--wash); padding: 22px 26px 18px; }
.verdict h2 { color: var(--tone); font-size: 25px; line-height: 1.25; margin: 0 0 14px; }
.verdict p { font-size: 17px; margin: 0; max-width: none; }
.figures { display: flex; flex-wrap: wrap; gap: 4px 44px; margin: 0 0 14px; }
.figures div { line-height: 1.25; }
.figures b { display: block; font-size: 34px; font-variant-numeric: tabular-nums; }
.figures span { color: var(--muted); font-size: 14px; }
.void b { text-decoration: line-through; text-decoration-thickness: 2px; opacity: 0.75; }
.box dl { padding: 20px 26px; }
dl { display: grid; grid-template-columns: 168px 1fr; gap: 9px 20px; margin: 0;
  font-size: 15px; }
dt { color: var(--muted); } dd { margin: 0; overflow-wrap: anywhere; }
dd ul { margin: 0; padding-left: 18px; }
dd.bad { color: var(--tone); font-weight: 600; }
.sentence { border-top: 1px solid var(--grid); padding: 14px 26px 16px; margin: 0;
  font-size: 14px; color: var(--muted); max-width: none; overflow-wrap: anywhere; }
.stopped { background: var(--amber-soft); border-radius: 8px; padding: 10px 16px; margin: 18px 0 0;
  max-width: none; }
.told { --tone: var(--green); --wash: var(--green-soft); border-left: 5px solid var(--tone);
  background: var(--wash); border-radius: 8px; padding: 14px 20px 8px; margin: 0 0 18px; }
.told.red { --tone: var(--red); --wash: var(--red-soft); }
.told.grey { --tone: var(--ink); --wash: var(--soft); border-left-color: var(--muted); }
.told.amber { --tone: var(--amber); --wash: var(--amber-soft); }
.told b.says { display: block; color: var(--tone); font-size: 18px; margin-bottom: 4px; }
.told ul { margin: 0 0 12px; padding-left: 20px; } .told li { overflow-wrap: anywhere; }
.tag { display: inline-block; border: 1px solid var(--muted); border-radius: 9px; padding: 1px 8px;
  color: var(--muted); font-size: 12px; font-weight: 400; line-height: 1.4; letter-spacing: 0;
  vertical-align: middle; white-space: nowrap; }
.scroll { overflow-x: auto; margin: 0 0 14px; } figure .scroll { margin: 0; }
.scroll { background: linear-gradient(to right, var(--paper) 55%, transparent) 0 0 local,
  linear-gradient(to left, var(--paper) 55%, transparent) 100% 0 local,
  linear-gradient(to right, var(--shade), transparent) 0 0 scroll,
  linear-gradient(to left, var(--shade), transparent) 100% 0 scroll;
  background-repeat: no-repeat; background-size: 48px 100%, 48px 100%, 20px 100%, 20px 100%; }
table { border-collapse: collapse; width: 100%; font-size: 15px;
  font-variant-numeric: tabular-nums; }
th { text-align: right; font-weight: 600; font-size: 13.5px; color: var(--muted);
  vertical-align: bottom; line-height: 1.3; }
td { text-align: right; }
td + td { white-space: nowrap; }
table.left td, td .said { white-space: normal; }
th, td { padding: 7px 10px; border-bottom: 1px solid var(--grid); }
th:first-child, td:first-child { text-align: left; padding-left: 0; overflow-wrap: anywhere;
  min-width: 9em; }
.wide .corner { min-width: 250px; }
th small { display: block; font-weight: 400; }
tr.mine td { font-weight: 650; background: var(--soft); }
tr.mine td:first-child { padding-left: 8px; }
table.left td:nth-child(-n+2), table.left th:nth-child(-n+2) { text-align: left; }
td .said, th .said { display: block; text-align: left; padding-left: 14px; }
td .said { color: var(--muted); font-size: 14px; min-width: 11em; }
.bars td:last-child { width: 40%; }
.bar { display: block; height: 12px; min-width: 2px; border-radius: 2px; background: var(--gain); }
.gain { color: var(--gain); } .loss { color: var(--loss); }
.green-text { color: var(--green); } .amber-text, .red-text { font-weight: 650; }
.amber-text { color: var(--amber); } .red-text { color: var(--red); }
figure { margin: 14px 0 18px; } .slim { display: none; }
.facts { padding: 4px 26px 12px; margin: 0; } .facts dl { padding: 8px 0; }
.signed { display: flex; gap: 40px; margin-top: 40px; color: var(--muted); font-size: 14px; }
.signed span { flex: 1; border-top: 1px solid var(--muted); padding-top: 4px; }
figure svg { display: block; width: 100%; height: auto; }
.drawn { margin: 0 auto; width: calc(var(--share) * 1%); min-width: min(100%, 480px); }
figcaption { color: var(--muted); font-size: 14px; margin-top: 6px; }
details { margin: 10px 0; } summary { cursor: pointer; font-weight: 600; padding: 4px 0; }
footer { margin-top: 48px; border-top: 1px solid var(--grid); padding-top: 12px;
  color: var(--muted); font-size: 13px; }
@media (max-width: 640px) { dl { grid-template-columns: 1fr; gap: 2px; } dd { margin: 0 0 10px; }
  main { padding: 24px 16px 48px; } .verdict, .box dl, .sentence { padding-left: 16px;
  padding-right: 16px; } .wide th { min-width: 96px; } .wide .corner { min-width: 150px; }
  .drawn { width: 100%; min-width: calc(var(--share) * 6px); }
  .drawn.slim { display: block; min-width: 0; } .drawn.has-slim { display: none; }
  .bars td:last-child { width: 22%; } }
.onepage { font-size: 14px; line-height: 1.4; } .onepage h1 { font-size: 24px; }
.onepage h2 { font-size: 17px; margin: 16px 0 4px; } .onepage .sub { margin-bottom: 10px; }
.onepage .told { padding: 8px 16px 2px; margin-bottom: 10px; }
.onepage .verdict p { font-size: 14px; } .onepage .verdict { padding: 12px 18px 10px; }
.onepage .verdict h2 { margin: 0 0 6px; }
.onepage .figures { margin-bottom: 6px; } .onepage .figures b { font-size: 22px; }
.onepage dl { font-size: 13px; gap: 4px 16px; padding: 10px 18px; }
.onepage .sentence { font-size: 12px; padding: 6px 18px; } .onepage table { font-size: 13px; }
.onepage th, .onepage td { padding: 3px 8px; } .onepage .uncovered { margin: 8px 0; }
@media print { :root { color-scheme: light; } body { font-size: 11pt; }
  td + td { white-space: normal; }
  main { max-width: none; padding: 0; }
  h1, h2, h3, summary { break-after: avoid; } .verdict, .told, figure, tr, dt, dd, .together,
  .signed { break-inside: avoid; } p { orphans: 3; widows: 3; }
  h2 { margin-top: 28px; } figure svg { max-height: 190mm; } .scroll { overflow: visible; }
  .box { overflow: visible; } footer { margin-top: 24px;
  break-before: avoid; } .onepage { zoom: 0.85; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""
).replace("FONT", FONT)


PLAIN = "This file contains no scripts and loads nothing from anywhere."
"""The end of the footer of every page."""


class Markup(str):
    """HTML made by this package; every other string is text and is escaped."""


def text(value: object) -> str:
    return value if isinstance(value, Markup) else escape(str(value))


def paragraph(words: object, kind: str = "") -> str:
    return f'<p class="{kind}">{text(words)}</p>' if kind else f"<p>{text(words)}</p>"


def note(says: object, colour: str, content: str) -> str:
    """A coloured box that says one thing in bold, and explains it."""
    return f'<div class="told {colour}" role="note"><b class="says">{text(says)}</b>{content}</div>'


CORNER = '<td class="corner"></td>'
"""Above a column without a name: an empty heading would be read out as one."""


def table(
    head: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    kind: str = "",
    mine: int | None = None,
) -> str:
    """A table; `mine` is the row that stands out."""
    stands_out = '<tr class="mine">'
    body = "".join(
        (stands_out if place == mine else "<tr>")
        + "".join(f"<td>{text(cell)}</td>" for cell in row)
        + "</tr>"
        for place, row in enumerate(rows)
    )
    names = (f'<th scope="col">{text(cell)}</th>' if cell else CORNER for cell in head)
    top = "".join(names)
    header = f"<thead><tr>{top}</tr></thead>" if head else ""
    return scrolled(f'<table class="{kind}">{header}<tbody>{body}</tbody></table>', "table")


def scrolled(content: str, what: str) -> str:
    """What may be wider than the screen: its shaded edges say so, and keys move it too."""
    label = f'role="group" aria-label="{what}, scrolls sideways"'
    return f'<div class="scroll" tabindex="0" {label}>{content}</div>'


def together(*parts: str) -> str:
    """A heading and what stands below it, on one page when printed."""
    return f'<div class="together">{"".join(parts)}</div>'


def drawing(fig: Figure | None, name: str, caption: str, *, slim: bool = False) -> str:
    """A figure with its caption; narrow ones keep their share of the width, so letters match.

    With `slim` it is drawn once more for a small screen, where its letters would be too small.
    """
    if fig is None:
        return ""
    width = min(100.0, 100 * fig.get_figwidth() / WIDE)
    drawn = svg(fig, name, caption)
    if slim:
        height, narrow = fig.get_figheight(), fig.get_figwidth() < 1.3 * SLIM
        taller = min(1.2 * height, max(height, 1.4 * SLIM))
        fig.set_size_inches(SLIM, height * SLIM / fig.get_figwidth() if narrow else taller)
        return framed(drawn, width, caption, svg(fig, f"{name}-slim", caption))
    return framed(drawn, width, caption)


def framed(drawn: str, width: float, caption: str, slim: str = "") -> str:
    """An `<svg>` that takes `width` per cent of the page, with its caption."""
    kind = "drawn has-slim" if slim else "drawn"
    drawn = f'<div class="{kind}" style="--share: {width:.0f}">{drawn}</div>'
    if slim:
        drawn += f'<div class="drawn slim">{slim}</div>'
    else:  # on a small screen it scrolls, rather than having tiny letters
        drawn = scrolled(drawn, "figure")
    return f"<figure>{drawn}<figcaption>{escape(caption)}</figcaption></figure>"


def definitions(pairs: Iterable[tuple[str, object, str]]) -> str:
    """Terms with their text; a list becomes bullet points."""
    made = []
    for term, value, kind in pairs:
        if isinstance(value, (list, tuple)):
            value = Markup("<ul>" + "".join(f"<li>{text(item)}</li>" for item in value) + "</ul>")
        made.append(f'<dt>{escape(term)}</dt><dd class="{kind}">{text(value)}</dd>')
    return f"<dl>{''.join(made)}</dl>"


def details(summary: str, content: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def document(title: str, content: str, footer: str, policy: str = POLICY, head: str = "") -> str:
    """A whole page; `head` is further markup there, which `policy` has to allow."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>{head}</head>\n"
        f"<body><main>\n{content}\n<footer>{escape(footer)}</footer>\n</main></body></html>\n"
    )


def embedded(content: str) -> str:
    """A part of another page, such as a notebook: no style of its own reaches beyond it."""
    style = STYLE.replace(":root", "&").replace("\nbody {", "\n& {").replace(" body {", " & {")
    inside = f".tacit {{ padding: 16px 20px; border-radius: 8px; {style} }}"
    return f'<div class="tacit"><style>{inside}</style>{content}</div>'


def save(page: str, path: str | os.PathLike[str]) -> Path:
    target = Path(path)
    make_folder(target.parent)
    # Names with lone surrogates (undecodable bytes in a file) must not stop the report.
    replace(target, page.encode("utf-8", "replace"))
    return target
