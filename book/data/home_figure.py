"""The figure of the home page, from home_figure.json; run as a script, it writes book/_static/transition.png."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from make_home_figure import BRANCHES, NAMES, TRAINED_ALPHAS, problem_at
from store import committed

from attn_lib import figures

PICTURE = Path(__file__).resolve().parents[1] / "_static" / "transition.png"


def stored():
    """Theory and trained layers as columns over alpha.

    Returns
    -------
    theory : dict
    trained : dict
        "alpha", and for each branch columns (alpha, seed).
    """
    values = {name: part["value"] for name, part in committed("make_home_figure")["parts"].items()}
    trained = {"alpha": TRAINED_ALPHAS}
    for start in BRANCHES:
        runs = [values[f"simulation/{start}/{alpha}"] for alpha in TRAINED_ALPHAS]
        trained[start] = {name: [run[name] for run in runs] for name in NAMES}
    return values["theory"], trained


def lower_minimum(trained, name):
    """The named quantity at the lower one of the two minima of each run, (alpha, seed)."""
    lower = np.less(trained["semantic"]["train_loss"], trained["positional"]["train_loss"])
    return np.where(lower, trained["semantic"][name], trained["positional"][name])


def draw(theory, trained):
    """The figure: order parameters and test error of the global minimum against alpha.

    Parameters
    ----------
    theory, trained : dict
        As :func:`stored` returns them.

    Returns
    -------
    matplotlib Figure
    """
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
    draw(*stored()).savefig(PICTURE, dpi=150)
