"""Figures that can be played with, in a page without a server and in a notebook.

A :class:`Figure` has sliders and a function from their values to panels and numbers. In a page the function has been
evaluated for all values of the sliders, and a small script shows what it gave; the page also has a still image and a
table for those without the script, and for paper. In a notebook :meth:`Figure.widget` evaluates it as a slider moves.
The six figures of the book are in :mod:`attn_lib.interactive.part1` and :mod:`attn_lib.interactive.part2`.
"""

import json
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from attn_lib._checks import check_integer
from attn_lib.interactive.drawing import STYLE

__all__ = ["Figure", "Slider", "View"]


@dataclass(frozen=True, kw_only=True)
class Slider:
    """What can be chosen.

    Parameters
    ----------
    label : str
        HTML.
    values : sequence of floats
        Ascending, at least two.
    start : int
        Place of the value shown at first.
    form : str
        Of a value in text.
    log : bool
        Whether a notebook offers powers of ten between the ends.

    Examples
    --------
    >>> Slider(label="&alpha;", values=(0.5, 1.0), start=1).text(1)
    '1'
    """

    label: str
    values: tuple
    start: int = 0
    form: str = "{:g}"
    log: bool = False

    def __post_init__(self):
        values = np.asarray(self.values, dtype=float)
        if values.ndim != 1 or values.size < 2 or not np.isfinite(values).all() or not (np.diff(values) > 0).all():
            raise ValueError(f"values = {self.values!r}: must be at least two finite numbers in ascending order")
        if self.log and values[0] <= 0:
            raise ValueError(f"values = {self.values!r}: must be > 0 on a logarithmic slider")
        check_integer("start", self.start, 0)
        if self.start >= values.size:
            raise ValueError(f"start = {self.start!r}: must be below the number of values, {values.size}")

    def text(self, index):
        """A value as it is shown.

        Parameters
        ----------
        index : int

        Returns
        -------
        str
        """
        return self.form.format(self.values[index])


class View(NamedTuple):
    """What a figure shows at one choice: panels, and numbers as text under labels in HTML."""

    panels: list
    numbers: dict


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure with sliders.

    Parameters
    ----------
    name : str
        Letters and hyphens; one a page.
    title : str
    sliders : dict of Slider
        By the name of the argument of ``view``.
    view : function
        From values of the sliders to a :class:`View`; axes and labels of numbers are the same for all values.
    """

    name: str
    title: str
    sliders: dict
    view: object

    def __post_init__(self):
        if not self.name.replace("-", "").isalpha():
            raise ValueError(f"name = {self.name!r}: must be letters and hyphens")
        if not self.sliders:
            raise ValueError("sliders = {}: must have at least one")

    def frames(self):
        """All views, the last slider moving fastest.

        Returns
        -------
        dict
            "marks", each different mark once; "frames", for each view the places of the marks of its panels; "numbers",
            for each view the texts.

        Raises
        ------
        ValueError
            Axes or labels change with the values.
        """
        views = [self._view(values) for values in product(*(s.values for s in self.sliders.values()))]
        fixed, places = _fixed(views[0]), {}
        for view in views:
            if _fixed(view) != fixed:
                raise ValueError(f"view of figure {self.name!r}: axes and labels must be the same for all values")
        frames = [
            [[places.setdefault(mark, len(places)) for mark in _marks(panel)] for panel in view.panels]
            for view in views
        ]
        return {"marks": list(places), "frames": frames, "numbers": [list(view.numbers.values()) for view in views]}

    def still(self, view, at):
        """Image, key and table of a view, without sliders.

        Parameters
        ----------
        view : View
        at : str
            Where, for the caption of the table.

        Returns
        -------
        str
        """
        panels = "".join(panel.svg("".join(_marks(panel))) for panel in view.panels)
        rows = "".join(f'<tr><th scope="row">{name}</th><td>{text}</td></tr>' for name, text in view.numbers.items())
        return (
            f'<div class="play-panels">{panels}</div>{_key(view.panels)}'
            f'<table><caption aria-live="polite">At {at}</caption><tbody>{rows}</tbody></table>'
        )

    def html(self):
        """The figure for a page.

        Returns
        -------
        str
        """
        sliders, data = list(self.sliders.values()), self.frames()
        start = [s.start for s in sliders]
        view = self._view([s.values[i] for s, i in zip(sliders, start, strict=True)])
        controls = "".join(
            f'<div><label for="play-{self.name}-{i}">{s.label} = <output>{s.text(s.start)}</output></label>'
            f'<input type="range" id="play-{self.name}-{i}" min="0" max="{len(s.values) - 1}" step="1" '
            f'value="{s.start}" aria-valuetext="{s.text(s.start)}" autocomplete="off"></div>'
            for i, s in enumerate(sliders)
        )
        script = {**data, "texts": [[s.text(i) for i in range(len(s.values))] for s in sliders]}
        script["labels"] = [s.label for s in sliders]
        packed = json.dumps(script, separators=(",", ":")).replace("</", r"<\/")
        return (
            f'<div class="play" id="play-{self.name}" role="group" aria-labelledby="play-{self.name}-title">'
            f'<style>{STYLE}</style><p class="play-title" id="play-{self.name}-title">{self.title}</p>'
            f'<form class="play-sliders" hidden>{controls}</form>{self.still(view, _at(sliders, start))}'
            f"{self._table(data, list(view.numbers))}"
            "<noscript><p>The sliders of this figure need JavaScript.</p></noscript>"
            f'<script type="application/json">{packed}</script></div>'
        )

    _repr_html_ = html

    def widget(self):
        """The figure in a notebook with a kernel: computed at any value of the sliders as they are released.

        Returns
        -------
        ipywidgets.VBox
        """
        import ipywidgets

        def control(s):
            ends = (np.log10(s.values[0]), np.log10(s.values[-1])) if s.log else (s.values[0], s.values[-1])
            kind = ipywidgets.FloatLogSlider if s.log else ipywidgets.FloatSlider
            step = (ends[1] - ends[0]) / 100
            return kind(value=s.values[s.start], min=ends[0], max=ends[1], step=step, continuous_update=False)

        sliders = list(self.sliders.values())
        controls, picture = [control(s) for s in sliders], ipywidgets.HTML()

        def draw(_=None):
            values = [c.value for c in controls]
            at = ", ".join(f"{s.label} = {v:.4g}" for s, v in zip(sliders, values, strict=True))
            view = self._view(values)
            picture.value = f'<style>{STYLE}</style><div class="play">{self.still(view, at)}</div>'

        for c in controls:
            c.observe(draw, "value")
        draw()
        rows = [ipywidgets.HBox([ipywidgets.HTML(s.label), c]) for s, c in zip(sliders, controls, strict=True)]
        return ipywidgets.VBox([ipywidgets.HTML(f"<b>{self.title}</b>"), *rows, picture])

    def _view(self, values):
        return self.view(**dict(zip(self.sliders, values, strict=True)))

    def _table(self, data, labels):
        """The numbers along the first slider, the others where they start."""
        sliders = list(self.sliders.values())
        shape, start = [len(s.values) for s in sliders], [s.start for s in sliders]
        first = sliders[0]
        head = "".join(f'<th scope="col">{label}</th>' for label in (first.label, *labels))
        rows = []
        for i in range(len(first.values)):
            numbers = data["numbers"][np.ravel_multi_index([i, *start[1:]], shape)]
            cells = "".join(f"<td>{text}</td>" for text in numbers)
            rows.append(f'<tr><th scope="row">{first.text(i)}</th>{cells}</tr>')
        where = f", at {_at(sliders[1:], start[1:])}" if len(sliders) > 1 else ""
        return (
            f"<details><summary>The numbers as a table{where}</summary><table><thead><tr>{head}</tr></thead>"
            f"<tbody>{''.join(rows)}</tbody></table></details>"
        )


def _at(sliders, indices):
    return ", ".join(f"{s.label} = {s.text(i)}" for s, i in zip(sliders, indices, strict=True))


def _marks(panel):
    return [mark.svg(panel.at) for mark in panel.marks]


def _fixed(view):
    """What must not change as a slider moves."""
    return [panel.axes() for panel in view.panels], _key(view.panels), list(view.numbers)


def _key(panels):
    """Names of what is drawn, each once."""
    named = {}
    for mark in (mark for panel in panels for mark in panel.marks):
        for colour, name in enumerate(getattr(mark, "names", ())):
            rect = f'<rect width="56" height="24" style="fill: var(--c{colour}); fill-opacity: 0.55"/>'
            named.setdefault(name, rect)
        if mark.name:
            named.setdefault(mark.name, mark.swatch.format(look=mark.look, colour=mark.colour))
    items = (
        f'<li><svg viewBox="0 0 56 24" aria-hidden="true">{swatch}</svg>{name}</li>' for name, swatch in named.items()
    )
    return f'<ul class="play-key">{"".join(items)}</ul>' if named else ""
