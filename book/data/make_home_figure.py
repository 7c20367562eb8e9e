"""The transition at omega = 0.3 for the home page and the README: theory, trained layers, and the figure.

    python book/data/make_home_figure.py

writes transition.json (numbers, with their seeds, versions and time) beside this file, and
book/_static/transition.png.
"""

import json
import platform
import time
from datetime import date
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy
import torch

from attn_lib import figures
from attn_lib.problems import PositionalSemantic
from attn_lib.simulation import erm
from attn_lib.theory import positional_semantic, transitions

HERE = Path(__file__).resolve().parent
RECORD = HERE / "transition.json"
PICTURE = HERE.parent / "_static" / "transition.png"

OMEGA = 0.3
THEORY_ALPHAS = [0.05, 0.06, 0.07, 0.08, *np.arange(2, 42) / 20]  # m is born near 0.0575, steeply
TRAINED_ALPHAS = [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0]
D, SEEDS = 1000, range(16)
BRANCHES = ("positional", "semantic")
NAMES = ("train_loss", "test_error", "m", "theta")


def problem_at(alpha):
    return PositionalSemantic(alpha=alpha, omega=OMEGA)


def predict():
    """Both branches on a grid of alpha; collapsed points carry m = theta = 0."""
    alpha_c = transitions.alpha_c(omega=OMEGA)
    alphas = np.unique([*THEORY_ALPHAS, alpha_c])
    curves = {"alpha": alphas.tolist(), "alpha_c": alpha_c, "alpha_l": transitions.alpha_l(omega=OMEGA)}
    for start in BRANCHES:
        columns = {name: [] for name in NAMES}
        guess = None
        for alpha in alphas[::-1]:  # from large alpha, where both exist
            s = positional_semantic.solve(problem_at(alpha), start, guess=guess)
            guess = None if s.collapsed else s.overlaps
            row = (s.train_loss, s.test_error, s.overlaps.m, s.overlaps.theta)
            for name, value in zip(NAMES, row, strict=True):
                columns[name].insert(0, float(value))
        curves[start] = columns
    curves["linear_baseline"] = positional_semantic.linear_baseline(problem_at(1.0)).test_error
    return curves


def train():
    """Both starts at every alpha, one number per seed."""
    runs = {"alpha": TRAINED_ALPHAS, "d": D, "seeds": list(SEEDS)}
    for start in BRANCHES:
        trained = [
            erm.train_positional_semantic(problem_at(alpha), d=D, seeds=SEEDS, start=start, device="cpu")
            for alpha in TRAINED_ALPHAS
        ]
        if not all(t.converged.all() for t in trained):
            raise RuntimeError(f"{start} start: a run did not converge")
        runs[start] = {name: [getattr(t, name).tolist() for t in trained] for name in NAMES}
    return runs


def lower_minimum(trained, name):
    """The named quantity at the lower one of the two minima of each run, (alpha, seed)."""
    lower = np.less(trained["semantic"]["train_loss"], trained["positional"]["train_loss"])
    return np.where(lower, trained["semantic"][name], trained["positional"][name])


def draw(record):
    """The figure: order parameters and test error of the global minimum against alpha.

    Parameters
    ----------
    record : dict
        What transition.json holds.

    Returns
    -------
    matplotlib Figure
    """
    theory, trained = record["theory"], record["simulation"]
    figures.use_style()
    fig, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.5))
    rho = problem_at(1.0).rho
    alpha_c, alpha = theory["alpha_c"], np.array(theory["alpha"])

    def curve(ax, name, scale, color, label, linestyle="-"):
        for start, side in (("positional", alpha <= alpha_c), ("semantic", alpha >= alpha_c)):
            y = np.array(theory[start][name])[side] * scale
            shown = label if start == "positional" else None  # once
            ax.plot(alpha[side], y, color=color, linestyle=linestyle, label=shown)
        samples = lower_minimum(trained, name) * scale
        error = samples.std(axis=1, ddof=1) / np.sqrt(samples.shape[1])
        mean = samples.mean(axis=1)
        ax.errorbar(trained["alpha"], mean, error, color=color, fmt="o", markerfacecolor="white")

    curve(left, "m", 1 / rho, figures.POSITIONAL, label=r"positional overlap $m/\sigma^2$")
    curve(left, "theta", 1 / rho, figures.SEMANTIC, r"semantic overlap $\theta/\sigma^2$", linestyle="--")
    left.set(ylabel="order parameter", ylim=(0, None))
    curve(right, "test_error", 1e3, "black", label="attention layer")
    linear = theory["linear_baseline"] * 1e3
    right.axhline(linear, color=figures.BASELINE, linestyle=":", label="best linear positional layer")
    right.set(ylabel=r"test error $\epsilon_g\times 10^3$", ylim=(0, None))
    for ax in (left, right):
        ax.set_xlabel(r"samples per dimension $\alpha=n/d$")
        ax.axvline(alpha_c, color="0.7", linewidth=1, zorder=0)
        ax.text(alpha_c, 0.93, r" $\alpha_c$", transform=ax.get_xaxis_transform())
        ax.legend(fontsize="small", loc="center left" if ax is left else "lower left")
        ax.set_xticks([0, 0.5, 1, 1.5, 2])
    left.set_title("what is learned", loc="left")
    right.set_title("how well it predicts", loc="left")
    return fig


if __name__ == "__main__":
    begin = time.perf_counter()
    record = {"omega": OMEGA, "theory": predict(), "simulation": train()}
    record["made"] = {
        "on": date.today().isoformat(),
        "seconds": round(time.perf_counter() - begin),
        "python": platform.python_version(),
        **{package.__name__: package.__version__ for package in (np, scipy, torch)},
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    draw(record).savefig(PICTURE, dpi=150)
