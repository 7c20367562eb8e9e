"""Panels of a figure with sliders as SVG, and its style. Colours are variables, so that a page can have two themes.

Labels are HTML, with entities for Greek letters (``&alpha;``).
"""

import re
from dataclasses import dataclass
from html import escape

import numpy as np

from attn_lib._checks import check_number
from attn_lib.interactive.marks import BOTTOM, HEIGHT, INNER, LEFT, RIGHT, TOP, WIDTH

__all__ = ["STYLE", "Panel", "ticks"]

STYLE = """\
.play { --c0: #0072b2; --c1: #d55e00; --c2: #007a5a; --c3: #b0568a; --c4: #332288; --c5: #4d4d4d;
  --ink: var(--pst-color-text-base, #222); --faint: var(--pst-color-text-muted, #595959); color: var(--ink);
  border: 1px solid var(--pst-color-border, #ccc); border-radius: 6px; padding: 0.75rem; margin: 1rem 0;
  max-width: 52rem; }
html[data-theme="dark"] .play { --c0: #56b4e9; --c1: #ff8a3d; --c2: #2fc99c; --c3: #eda6d0; --c4: #b3a6ff;
  --c5: #b8b8b8; }
html[data-theme="dark"] .bd-content div.cell_output .text_html:has(> div.play) { background: none; color: inherit;
  padding: 0; }
.play-title { font-weight: 600; margin: 0 0 0.5rem; }
.play-sliders { display: flex; flex-wrap: wrap; gap: 0.25rem 1.5rem; }
.play-sliders[hidden] { display: none; }
.play-sliders div { flex: 1 1 11rem; }
.play-sliders label { display: block; }
.play-sliders output { font-variant-numeric: tabular-nums; font-weight: 600; }
.play-sliders input { width: 100%; accent-color: var(--c0); height: 1.75rem; }
.play-panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(18rem, 100%), 1fr)); gap: 0.5rem; }
.play-panels > svg { width: 100%; max-width: 30rem; height: auto; margin: 0 auto; }
.play text { fill: var(--ink); font: 26px var(--pst-font-family-base, sans-serif); }
.play .axis { stroke: var(--faint); stroke-width: 2; fill: none; }
.play .line { fill: none; stroke-width: 5; stroke-linejoin: round; }
.play .thin { stroke-width: 2.5; }
.play .dash { stroke-dasharray: 12 9; }
.play-key { list-style: none; display: flex; flex-wrap: wrap; gap: 0 1.25rem; padding: 0; margin: 0.5rem 0; }
.play-key li { margin: 0; }
.play-key svg { width: 1.75rem; height: 0.75rem; margin-right: 0.35rem; }
.play table { margin: 0.5rem 0; border-collapse: collapse; font-size: 0.95em; }
.play caption { caption-side: top; text-align: left; color: var(--ink); padding: 0.25rem 0; }
.play :is(th, td) { text-align: left; font-weight: 400; padding: 0.15rem 1rem 0.15rem 0;
  border-bottom: 1px solid var(--pst-color-border, #ccc); font-variant-numeric: tabular-nums; }
.play details { overflow-x: auto; }
@media print { .play { break-inside: avoid; } .play :is(.play-sliders, details) { display: none; } }
"""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Axes with marks.

    Parameters
    ----------
    title, x, y : str
        HTML.
    xlim, ylim : pair of floats
        Ends of the axes, in either order.
    log : str
        Of the letters x and y, those of logarithmic axes.
    xticks, yticks : sequence of floats, optional
        By default about five round numbers, or powers of ten.
    marks : list of Line, Points, Level, Attention, Cells
    """

    title: str
    x: str
    y: str
    xlim: tuple
    ylim: tuple
    marks: list
    log: str = ""
    xticks: tuple = None
    yticks: tuple = None

    def __post_init__(self):
        for name, (low, high) in (("xlim", self.xlim), ("ylim", self.ylim)):
            for end in (low, high):
                check_number(
                    name, end, "finite, > 0 on a logarithmic axis", lambda v, n=name: n[0] not in self.log or v > 0
                )
            if low == high:
                raise ValueError(f"{name} = {(low, high)!r}: must have two different ends")

    def at(self, x, y):
        """Coordinates inside the axes.

        Parameters
        ----------
        x, y : arrays

        Returns
        -------
        tuple of arrays
        """
        return tuple(
            (1 - share if name == "y" else share) * length
            for name, values, ends, length in (("x", x, self.xlim, INNER[0]), ("y", y, self.ylim, INNER[1]))
            for share in [_share(values, ends, name in self.log)]
        )

    def axes(self):
        """The axes with ticks and labels.

        Returns
        -------
        str
        """
        xticks = self.xticks or ticks(self.xlim, "x" in self.log)
        yticks = self.yticks or ticks(self.ylim, "y" in self.log)
        right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
        drawn = [f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{right}"/>']
        for tick, x in zip(xticks, self.at(xticks, np.ones(len(xticks)))[0] + LEFT, strict=True):
            drawn.append(f'<path class="axis" d="M{x:.0f} {bottom}v8"/>')
            drawn.append(
                f'<text x="{x:.0f}" y="{bottom + 36}" text-anchor="middle">{_number(tick, "x" in self.log)}</text>'
            )
        for tick, y in zip(yticks, self.at(np.ones(len(yticks)), yticks)[1] + TOP, strict=True):
            drawn.append(f'<path class="axis" d="M{LEFT} {y:.0f}h-8"/>')
            drawn.append(
                f'<text x="{LEFT - 14}" y="{y + 9:.0f}" text-anchor="end">{_number(tick, "y" in self.log)}</text>'
            )
        drawn.append(f'<text x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 14}" text-anchor="middle">{self.x}</text>')
        drawn.append(f'<text x="14" y="30">{self.y}</text>')
        drawn.append(f'<text x="{right}" y="30" text-anchor="end" font-weight="600">{self.title}</text>')
        return "".join(drawn)

    def svg(self, marks):
        """The whole panel, with what is drawn inside the axes.

        Parameters
        ----------
        marks : str

        Returns
        -------
        str
        """
        words = re.sub("<[^>]*>", "", f"{self.title}: {self.y} against {self.x}".removeprefix(": "))
        label = escape(words).replace("&amp;", "&")  # entities stay
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{self.axes()}'
            f'<svg x="{LEFT}" y="{TOP}" width="{INNER[0]}" height="{INNER[1]}"><g class="marks">{marks}</g></svg></svg>'
        )


def ticks(ends, log):
    """Round numbers between two ends: about five, or powers of ten.

    Parameters
    ----------
    ends : pair of floats
    log : bool

    Returns
    -------
    list of float
    """
    low, high = min(ends), max(ends)
    if log:
        first, last = np.ceil(np.log10(low) - 1e-9), np.floor(np.log10(high) + 1e-9)
        return [10.0**k for k in np.arange(first, last + 1, np.ceil((last - first + 1) / 6))]
    rough = (high - low) / 5
    step = next(s for s in 10.0 ** np.floor(np.log10(rough)) * np.array([1, 2, 5, 10]) if s >= 0.99 * rough)
    return [float(k * step) for k in range(int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9)) + 1)]


def _number(value, log):
    if log and value != 1:
        return f'10<tspan dy="-10" font-size="19">{round(np.log10(value))}</tspan>'
    return f"{value:g}"


def _share(values, ends, log):
    """Position on an axis, 0 to 1; nan where a logarithm does not exist."""
    values, ends = np.asarray(values, dtype=float), np.asarray(ends, dtype=float)
    if log:
        values, ends = np.log(np.where(values > 0, values, np.nan)), np.log(ends)
    return (values - ends[0]) / (ends[1] - ends[0])
