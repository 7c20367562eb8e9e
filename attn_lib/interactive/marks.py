"""What is drawn inside the axes of a figure with sliders, as SVG: lines, dots, levels, attention, maps."""

from dataclasses import dataclass

import numpy as np

__all__ = ["Attention", "Cells", "Level", "Line", "Points"]

# Two units are a pixel of a small screen, so that whole numbers are fine enough.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 500, 112, 24, 56, 92
INNER = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM


@dataclass(frozen=True)
class Line:
    """A line through points; a nan breaks it. Thin ones are there for comparison."""

    x: object
    y: object
    colour: int = 0
    name: str = ""
    look: str = ""  # of "thin", "dash"

    swatch = '<path class="line {look}" style="stroke: var(--c{colour})" d="M0 12H56"/>'

    def svg(self, at):
        """The mark in the coordinates of the panel.

        Parameters
        ----------
        at : function
            From arrays x, y to coordinates.

        Returns
        -------
        str
        """
        d, pen = [], "M"
        for x, y in zip(*at(self.x, self.y), strict=True):
            if not (np.isfinite(x) and np.isfinite(y)):
                pen = "M"
                continue
            d.append(f"{pen}{x:.0f} {y:.0f}")
            pen = "L"
        return f'<path class="line {self.look}" style="stroke: var(--c{self.colour})" d="{"".join(d)}"/>'


@dataclass(frozen=True)
class Points:
    """Dots."""

    x: object
    y: object
    colour: int = 0
    name: str = ""

    look = ""
    swatch = '<circle cx="28" cy="12" r="9" style="fill: var(--c{colour})"/>'

    def svg(self, at):
        """As of :class:`Line`.

        Parameters
        ----------
        at : function

        Returns
        -------
        str
        """
        pairs = zip(*at(self.x, self.y), strict=True)
        dots = (f'<circle cx="{x:.0f}" cy="{y:.0f}" r="9"/>' for x, y in pairs if np.isfinite(x) and np.isfinite(y))
        return f'<g style="fill: var(--c{self.colour})">{"".join(dots)}</g>'


@dataclass(frozen=True)
class Level:
    """A vertical line over the whole height, with a label at its top."""

    x: float
    label: str = ""
    colour: int = 5
    row: int = 0

    name, look = "", ""

    def svg(self, at):
        """As of :class:`Line`.

        Parameters
        ----------
        at : function

        Returns
        -------
        str
        """
        (x,) = at([self.x], [np.nan])[0]
        end = x > INNER[0] / 2
        anchor, text_x = ("end", x - 8) if end else ("start", x + 8)
        text = f'<text x="{text_x:.0f}" y="{26 + 30 * self.row}" text-anchor="{anchor}">'
        line = f'<path class="line thin dash" style="stroke: var(--c{self.colour})" d="M{x:.0f} 0V{INNER[1]}"/>'
        return line + (f"{text}{self.label}</text>" if self.label else "")


@dataclass(frozen=True)
class Attention:
    """An attention matrix with its entries, the darker the larger between ``low`` and ``high``."""

    matrix: object
    low: float = 0.0
    high: float = 1.0

    name, look = "", ""

    def svg(self, at):
        """As of :class:`Line`.

        Parameters
        ----------
        at : function

        Returns
        -------
        str
        """
        cells = []
        for (i, j), value in np.ndenumerate(np.asarray(self.matrix)):
            (left, right), (top, bottom) = at([j + 0.5, j + 1.5], [i + 0.5, i + 1.5])
            share = float(np.clip((value - self.low) / (self.high - self.low), 0, 1))
            cells.append(
                f'<rect x="{left:.0f}" y="{top:.0f}" width="{right - left:.0f}" height="{bottom - top:.0f}" '
                f'style="fill: var(--c0); fill-opacity: {0.55 * share:.2f}"/>'
                f'<text x="{(left + right) / 2:.0f}" y="{(top + bottom) / 2 + 10:.0f}" text-anchor="middle">'
                f"{value:.2f}</text>"
            )
        return "".join(cells)


@dataclass(frozen=True)
class Cells:
    """A map of whole numbers, the colours of its cells; ``names`` of colours are for the key."""

    x: object  # edges
    y: object
    values: object  # one row for each cell in y
    names: tuple

    name, look = "", ""

    def svg(self, at):
        """As of :class:`Line`.

        Parameters
        ----------
        at : function

        Returns
        -------
        str
        """
        x, _ = at(self.x, np.full(len(self.x), self.y[0]))
        _, y = at(np.full(len(self.y), self.x[0]), self.y)
        drawn = []
        for row, values in enumerate(np.asarray(self.values)):
            cuts = [0, *(np.flatnonzero(np.diff(values)) + 1), len(values)]
            top, bottom = sorted((round(y[row]), round(y[row + 1])))
            for a, b in zip(cuts[:-1], cuts[1:], strict=True):
                drawn.append(
                    f'<rect x="{round(x[a])}" y="{top}" width="{round(x[b]) - round(x[a])}" height="{bottom - top}" '
                    f'fill="var(--c{values[a]})"/>'
                )
        return f'<g fill-opacity="0.55" shape-rendering="crispEdges">{"".join(drawn)}</g>'
