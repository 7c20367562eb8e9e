"""Figures of Part I: which minimum wins, and the two wells of the proximal operator."""

from functools import lru_cache

import numpy as np

from attn_lib import proximal
from attn_lib.interactive import Figure, Slider, View
from attn_lib.interactive.drawing import Panel
from attn_lib.interactive.marks import Attention, Level, Line, Points
from attn_lib.problems import PositionalSemantic
from attn_lib.theory.positional_semantic import linear_baseline, solve

__all__ = ["wells", "winner"]

ALPHAS = tuple(round(0.2 * k, 1) for k in range(1, 11))
OMEGAS = (0.0, 0.1, 0.2, 0.3, 0.4)
BRANCHES = {"semantic": 0, "positional": 1}  # colours
SENTENCE = (1.1, 0.3)  # teacher fields h*_u, h*_v
ACCURACY = 1e-3
FIELD_V = 0.25


def winner():
    """Train loss and test error of both branches, and the attention of the one that wins, over alpha and omega.

    Returns
    -------
    Figure
    """
    sliders = {
        "alpha": Slider(label="<i>&alpha;</i>", values=ALPHAS, start=5, form="{:.1f}"),
        "omega": Slider(label="<i>&omega;</i>", values=OMEGAS, start=3, form="{:.1f}"),
    }
    return Figure(name="winner", title="Which minimum wins?", sliders=sliders, view=_winner)


def wells():
    """The objective of the proximal operator along u, and where its minimum is, as the cavity field and V move.

    Returns
    -------
    Figure
    """
    sliders = {
        "field": Slider(
            label="<i>w</i><sub>u</sub>",
            values=tuple(np.round(np.linspace(-0.4, 0.4, 17), 2)),
            start=10,
            form="{:+.2f}",
        ),
        "V": Slider(label="<i>V</i>", values=(1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 20.0, 28.0), start=6, log=True),
    }
    return Figure(name="wells", title="Two wells, one proximal operator", sliders=sliders, view=_wells)


@lru_cache(maxsize=512)
def _solution(alpha, omega, start):
    """A branch, begun at the next larger alpha of the slider."""
    place = ALPHAS.index(alpha) + 1 if alpha in ALPHAS else len(ALPHAS)
    near = _solution(ALPHAS[place], omega, start) if place < len(ALPHAS) else None
    guess = near.overlaps if near and not near.collapsed else None
    return solve(PositionalSemantic(alpha=alpha, omega=omega), start, accuracy=ACCURACY, guess=guess)


def _winner(alpha, omega):
    here = {start: _solution(alpha, omega, start) for start in BRANCHES}
    best = min(here, key=lambda start: here[start].train_loss)
    panels = []
    for title, name, limits in (("train loss", "train_loss", (0, 6)), ("test error", "test_error", (0, 6))):
        marks = [Level(alpha)]
        for start, colour in BRANCHES.items():
            along = [_solution(a, omega, start) for a in ALPHAS]
            y = [np.nan if s.collapsed else 1e3 * getattr(s, name) for s in along]
            marks.append(Line(ALPHAS, y, colour, start))
        marks.append(Points([alpha], [1e3 * getattr(here[best], name)], BRANCHES[best]))
        y = f"{title}, 10<tspan dy='-10' font-size='19'>-3</tspan>"
        panels.append(Panel(title="", x="&alpha; = n/d", y=y, xlim=(0, 2.2), ylim=limits, marks=marks))
    problem, overlaps = here[best].problem, here[best].overlaps
    target = _matrix(*SENTENCE)
    target = (1 - omega) * target + omega * np.array(problem.A)
    share = overlaps.theta / problem.rho
    learned = _matrix(np.sqrt(2) * overlaps.m + share * SENTENCE[0], share * SENTENCE[1])
    for title, matrix in (("target", target), ("trained layer", learned)):
        panels.append(
            Panel(
                title=title,
                x="key token",
                y="query token",
                xlim=(0.5, 2.5),
                ylim=(2.5, 0.5),
                xticks=(1, 2),
                yticks=(1, 2),
                marks=[Attention(matrix, 0.3, 0.8)],
            )  # fmt: skip
        )
    numbers = {"lower minimum": best}
    for start in BRANCHES:
        s = here[start]
        numbers[f"train loss, {start}"] = "no such minimum" if s.collapsed else f"{s.train_loss:.6f}"
    for start in BRANCHES:
        s = here[start]
        numbers[f"test error, {start}"] = "no such minimum" if s.collapsed else f"{s.test_error:.6f}"
    numbers["test error, linear baseline"] = f"{linear_baseline(problem).test_error:.6f}"
    numbers["overlaps of the lower one"] = f"<i>m</i> = {overlaps.m:.3f}, <i>&theta;</i> = {overlaps.theta:.3f}"
    return View(panels, numbers)


def _matrix(u, v):
    """Attention of two tokens with fields u, v."""
    first, second = proximal.attention_diagonal(u, v)
    return np.array([[first, 1 - first], [1 - second, second]])


def _wells(field, V):
    problem = PositionalSemantic(alpha=1.5, omega=0.3)
    T = (1 - problem.omega) * np.diag(_matrix(*SENTENCE)) + problem.omega * np.diag(problem.A)
    u, v = np.linspace(-1.6, 1.6, 81), np.linspace(-1.2, 1.6, 113)
    heights = proximal.moreau_objective(u[:, None], v, field, FIELD_V, *T, V, problem.sigma)
    profile = heights.min(axis=1)
    low = np.flatnonzero((profile[1:-1] < profile[:-2]) & (profile[1:-1] < profile[2:])) + 1
    at = proximal.descend(u[low], v[heights[low].argmin(axis=1)], field, FIELD_V, *T, V, problem.sigma)
    depth = proximal.moreau_objective(*at, field, FIELD_V, *T, V, problem.sigma)
    best = proximal.prox(field, FIELD_V, *T, V, problem.sigma)
    fields = np.linspace(-0.5, 0.5, 101)
    map_u = proximal.prox(fields, FIELD_V, *T, V, problem.sigma)[0]
    jumps = np.abs(np.diff(map_u)) > 0.25
    fields, map_u = (
        np.insert(fields, np.flatnonzero(jumps) + 1, np.nan),
        np.insert(map_u, np.flatnonzero(jumps) + 1, np.nan),
    )
    left = Panel(
        title="at the best v", x="u", y="objective", xlim=(-1.6, 1.6), ylim=(0, 0.08),
        marks=[Level(field, "w<tspan dy='6' font-size='19'>u</tspan>"), Line(u, profile, 0, "objective"),
               Points(at[0], depth, 5, "wells"), Points([float(best[0])], [float(best[2])], 1, "proximal operator")],
    )  # fmt: skip
    right = Panel(
        title="proximal operator", x="cavity field", y="u of the minimum", xlim=(-0.5, 0.5), ylim=(-1.6, 1.6),
        marks=[Level(field), Line(fields, map_u, 1), Points([field], [float(best[0])], 1)],
    )  # fmt: skip
    numbers = {"wells": str(len(low))}
    for side, inside in (("left", at[0] < 0), ("right", at[0] >= 0)):
        k = np.flatnonzero(inside)
        text = "none" if not k.size else f"<i>u</i> = {at[0][k][depth[k].argmin()]:.3f}, objective {depth[k].min():.5f}"
        numbers[f"well on the {side}"] = text
    numbers["proximal operator"] = f"<i>u</i> = {float(best[0]):.3f}, <i>v</i> = {float(best[1]):.3f}"
    numbers["objective there"] = f"{float(best[2]):.5f}"
    return View([left, right], numbers)
