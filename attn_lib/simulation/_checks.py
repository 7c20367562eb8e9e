"""Checks of arguments, shared by the files of this directory."""

from numbers import Integral, Real

import numpy as np

from attn_lib.problems import SingleHead


def require(ok, name, value, allowed):
    """Raise ValueError naming the argument, its value and what is allowed, unless ok.

    Parameters
    ----------
    ok : bool
    name : str
    value : object
    allowed : str
        Completes "must be ...".
    """
    if not ok:
        raise ValueError(f"{name} = {value!r}: must be {allowed}")


def is_integer(value):
    """Whether value is an integer; True and False are not.

    Parameters
    ----------
    value : object

    Returns
    -------
    bool
    """
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_integers(low, **values):
    """Raise ValueError, naming the argument, unless all are integers >= low.

    Parameters
    ----------
    low : int
    values : object
    """
    for name, value in values.items():
        require(is_integer(value) and value >= low, name, value, f"an integer >= {low}")


def check_positive(**values):
    """Raise ValueError, naming the argument, unless all are finite numbers > 0.

    Parameters
    ----------
    values : object
    """
    for name, value in values.items():
        require(is_real(value) and value > 0, name, value, "a finite number > 0")


def check_training(s, seeds, starts):
    """Raise ValueError, naming the argument, for settings that cannot be run.

    Parameters
    ----------
    s : Settings
        Of :mod:`attn_lib.simulation.erm`.
    seeds : object
        As given by the caller; an iterable has become a list.
    starts : tuple of str
        The names of starts that are known.
    """
    require(s.start in starts, "start", s.start, f"one of {starts}")
    scales_ok = isinstance(s.scales, tuple) and s.scales and all(is_real(c) and c > 0 for c in s.scales)
    require(scales_ok, "scales", s.scales, "a tuple of finite numbers > 0")
    check_integers(2, n_test=s.n_test)
    check_positive(tolerance=s.tolerance)
    check_integers(1, max_iter=s.max_iter)
    check_seeds(seeds)


def check_single_head(s, seeds, optimisers):
    """Raise ValueError, naming the argument, for settings of Part II that cannot be run.

    Parameters
    ----------
    s : SingleHeadSettings
        Of :mod:`attn_lib.simulation.single_head`.
    seeds : object
        As given by the caller; an iterable has become a list.
    optimisers : tuple of str
        The names that are known.
    """
    names = {"task": ("seq2lab", "seq2seq"), "centring": ("trace", "empirical"), "optimiser": optimisers}
    for name, known in names.items():
        require(getattr(s, name) in known, name, getattr(s, name), f"one of {known}")
    check_positive(scale=s.scale, learning_rate=s.learning_rate, tolerance=s.tolerance)
    check_integers(0, start=s.start)
    check_integers(2, n_test=s.n_test)
    check_integers(1, max_iter=s.max_iter)
    threshold = s.rank_threshold
    require(is_real(threshold) and threshold >= 0, "rank_threshold", threshold, "a finite number >= 0")
    require(isinstance(s.noisy_test, bool), "noisy_test", s.noisy_test, "True or False")
    check_seeds(seeds)


def attention_size(problem, d):
    """Number of samples of a training set of Part I.

    Parameters
    ----------
    problem : PositionalSemantic or GeneralAttention
    d : object

    Returns
    -------
    int
        n = round(alpha d).

    Raises
    ------
    ValueError
        Tokens with fewer than two components, or no sample.
    """
    check_integers(2, d=d)
    n = round(problem.alpha * d)
    require(n >= 1, "alpha", problem.alpha, f"large enough for round(alpha d) >= 1 at d = {d}")
    return n


def single_head_size(problem, d, *, width=True):
    """Dimension, number of samples and width of a training of Part II.

    Parameters
    ----------
    problem : SingleHead
    d : object
    width : bool
        Whether p is used, and must not be 0.

    Returns
    -------
    tuple of int
        d, n = round(alpha d^2) and p = round(kappa d).

    Raises
    ------
    ValueError
        Another problem, tokens with fewer than two components, no sample, or no column.
    """
    require(isinstance(problem, SingleHead), "problem", problem, "a SingleHead")
    check_integers(2, d=d)
    d = int(d)
    n, p = round(problem.alpha * d**2), round(problem.kappa * d)
    require(n >= 1, "alpha", problem.alpha, f"large enough for round(alpha d^2) >= 1 at d = {d}")
    require(p >= 1 or not width, "kappa", problem.kappa, f"large enough for round(kappa d) >= 1 at d = {d}")
    return d, n, p


def lowest(losses, settings):
    """Index of the lowest loss among the runs of one seed; a run that overflowed does not count.

    Parameters
    ----------
    losses : array (scale,)
    settings : Settings

    Returns
    -------
    int

    Raises
    ------
    ValueError
        No run has a finite loss: the scales are too large.
    """
    require(np.isfinite(losses).any(), "scales", settings.scales, f"small enough for a finite loss in {settings.dtype}")
    return int(np.where(np.isfinite(losses), losses, np.inf).argmin())


def check_seeds(seeds):
    """Raise ValueError unless seeds is a list of distinct integers >= 0.

    Parameters
    ----------
    seeds : object
    """
    seeds_ok = isinstance(seeds, list) and seeds and all(is_integer(k) and 0 <= k < 2**63 for k in seeds)
    require(seeds_ok and len(set(seeds)) == len(seeds), "seeds", seeds, "distinct integers >= 0, not empty, < 2**63")


def is_real(value):
    """Whether value is a finite real number; True and False are not.

    Parameters
    ----------
    value : object

    Returns
    -------
    bool
    """
    return isinstance(value, Real) and not isinstance(value, bool) and -np.inf < value < np.inf
