"""Measurements of the theory: state evolution of both parts."""

from attn_lib.problems import PositionalSemantic, SingleHead
from attn_lib.theory import positional_semantic
from attn_lib.theory import single_head as full_rank

__all__ = ["both_branches", "single_head"]


def both_branches(problem: PositionalSemantic, *, accuracy=1e-4):
    """The semantic and the positional branch of Part I.

    Parameters
    ----------
    problem : PositionalSemantic
    accuracy : float
        As in :func:`attn_lib.theory.positional_semantic.solve`.

    Returns
    -------
    dict
        For each branch "train_loss", "test_error", "q", "m", "theta", "V" and "collapsed" (the branch does not exist
        here), with the name of the branch appended: "q_semantic". The branch of lower train loss is the minimum.
    """
    found = {}
    for branch in ("semantic", "positional"):
        s = positional_semantic.solve(problem, branch, accuracy=accuracy)
        values = {"train_loss": s.train_loss, "test_error": s.test_error, **s.overlaps._asdict()}
        found |= {f"{name}_{branch}": value for name, value in {**values, "collapsed": s.collapsed}.items()}
    return found


def single_head(problem: SingleHead, *, accuracy=None):
    """The fixed point of Part II.

    Parameters
    ----------
    problem : SingleHead
    accuracy : float, optional
        As in :func:`attn_lib.theory.single_head.solve`.

    Returns
    -------
    dict
        "test_error", "train_loss", "penalty", "rank", "m", "q", "Sigma", and of each its quadrature error, for instance
        "q_error".
    """
    s = full_rank.solve(problem, accuracy=accuracy)
    names = ("test_error", "train_loss", "penalty", "rank")
    values = {**{name: getattr(s, name) for name in names}, **s.overlaps._asdict()}
    return {**values, **{f"{name}_error": error for name, error in s.quadrature_error.items()}}
