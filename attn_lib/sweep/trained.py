"""Measurements of simulations: trained layers of both parts at finite d."""

from attn_lib.problems import PositionalSemantic, SingleHead
from attn_lib.simulation.erm import train_positional_semantic
from attn_lib.simulation.single_head import train_single_head

__all__ = ["both_starts", "single_head"]


def both_starts(problem: PositionalSemantic, *, seeds, d, n_test=2000, device=None):
    """Part I from the semantic and from the positional start, on the same data.

    Parameters
    ----------
    problem : PositionalSemantic
    seeds : tuple of int
    d, n_test, device
        As in :func:`attn_lib.simulation.erm.train_positional_semantic`.

    Returns
    -------
    dict
        For each start "train_loss", "test_error", "q", "m" and "theta", arrays with one entry a seed, with the name of
        the start appended: "q_semantic"; and "device".

    Raises
    ------
    RuntimeError
        A training that did not converge.
    """
    found = {}
    for start in ("semantic", "positional"):
        e = train_positional_semantic(problem, d=d, seeds=seeds, start=start, n_test=n_test, device=device)
        _require_converged(e)
        names = ("train_loss", "test_error", "q", "m", "theta")
        found |= {f"{name}_{start}": getattr(e, name) for name in names}
    return {**found, "device": e.settings.device}


def single_head(problem: SingleHead, *, seeds, d, n_test=10_000, dtype="float64", device=None):
    """Part II, from a random start.

    Parameters
    ----------
    problem : SingleHead
    seeds : tuple of int
    d, n_test, dtype, device
        As in :func:`attn_lib.simulation.single_head.train_single_head`.

    Returns
    -------
    dict
        "test_error", "test_error_se", "train_loss", "penalty", "m", "q", "rank" and "eigenvalues", arrays with one
        entry a seed; and "device".

    Raises
    ------
    RuntimeError
        A training that did not converge.
    """
    e = train_single_head(problem, d=d, seeds=seeds, n_test=n_test, dtype=dtype, device=device)
    _require_converged(e)
    names = ("test_error", "test_error_se", "train_loss", "penalty", "m", "q", "rank", "eigenvalues")
    return {**{name: getattr(e, name) for name in names}, "device": e.settings.device}


def _require_converged(trained):
    failed = trained.seeds[~trained.converged].tolist()
    if failed:
        raise RuntimeError(f"seeds {failed}: not converged after {trained.settings.max_iter} iterations")
