"""One style for all figures, and the drawings that more than one page needs. Draws results, computes nothing."""

import matplotlib as mpl
import numpy as np
from cycler import cycler

__all__ = ["BASELINE", "POSITIONAL", "SEMANTIC", "plot_attention", "use_style"]

# Okabe and Ito's palette, told apart by readers with any common colour vision (Tol's indigo for its pale blue, hard to
# see on white as a line)
SEMANTIC, POSITIONAL, BASELINE = "#0072B2", "#D55E00", "#4D4D4D"


def use_style():
    """Set matplotlib's defaults for this book: opaque background (readable in the dark theme), palette, sizes.

    Returns
    -------
    None
    """
    mpl.rcParams.update(
        {
            "figure.figsize": (7.0, 4.0),
            "figure.dpi": 110,
            "figure.facecolor": "white",
            "savefig.facecolor": "white",
            "figure.constrained_layout.use": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": cycler(color=[SEMANTIC, POSITIONAL, "#009E73", "#CC79A7", "#332288", BASELINE]),
            "axes.titlesize": "medium",
            "legend.frameon": False,
            "lines.markersize": 5,
            "errorbar.capsize": 2,
        }
    )


def plot_attention(attention, ax, title=None):
    """Draw a token-by-token attention matrix with its entries.

    Parameters
    ----------
    attention : array, shape (L, L)
        Rows (queries) sum to 1.
    ax : matplotlib Axes
    title : str, optional

    Returns
    -------
    AxesImage
    """
    image = ax.imshow(attention, cmap="cividis", vmin=0, vmax=1)
    for (row, column), value in np.ndenumerate(attention):
        ax.text(column, row, f"{value:.2f}", ha="center", va="center", color="black" if value > 0.55 else "white")
    tokens = range(len(attention))
    ax.set_xticks(tokens, [i + 1 for i in tokens])
    ax.set_yticks(tokens, [i + 1 for i in tokens])
    ax.set(xlabel="key token", ylabel="query token", title=title)
    return image
