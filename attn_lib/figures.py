"""One style for all figures, and the drawings that more than one page needs. Draws results, computes nothing."""

import matplotlib as mpl
from cycler import cycler

__all__ = ["BASELINE", "POSITIONAL", "SEMANTIC", "plot_attention", "use_style"]

# Okabe and Ito's palette, told apart by readers with any common colour vision
SEMANTIC, POSITIONAL, BASELINE = "#0072B2", "#D55E00", "#4D4D4D"


def use_style():
    """Set matplotlib's defaults for this book: opaque background (readable in the dark theme), palette, sizes."""
    mpl.rcParams.update(
        {
            "figure.figsize": (7.0, 4.0),
            "figure.dpi": 110,
            "figure.facecolor": "white",
            "savefig.facecolor": "white",
            "figure.constrained_layout.use": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": cycler(color=[SEMANTIC, POSITIONAL, "#009E73", "#CC79A7", "#56B4E9", BASELINE]),
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
    for (row, column), value in zip(
        ((i, j) for i in range(len(attention)) for j in range(len(attention))), attention.ravel(), strict=True
    ):
        ax.text(column, row, f"{value:.2f}", ha="center", va="center", color="black" if value > 0.55 else "white")
    ax.set(xticks=range(len(attention)), yticks=range(len(attention)), xlabel="key token", ylabel="query token", title=title)
    ax.set_xticklabels([str(i + 1) for i in range(len(attention))])
    ax.set_yticklabels([str(i + 1) for i in range(len(attention))])
    return image
