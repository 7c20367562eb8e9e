"""Checks of arguments, shared by the files of this directory."""

from numbers import Integral, Real

import numpy as np
import psutil
import torch

DTYPES = {"float32": torch.float32, "float64": torch.float64}


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


def check_training(s, problem, seeds, starts):
    """Raise ValueError, naming the argument, for settings that cannot be run.

    Parameters
    ----------
    s : Settings
        Of :mod:`attn_lib.simulation.erm`.
    problem : PositionalSemantic or GeneralAttention
    seeds : object
        As given by the caller; an iterable has become a list.
    starts : tuple of str
        The names of starts that are known.
    """
    check_size(problem, s.d, s.n)
    require(s.start in starts, "start", s.start, f"one of {starts}")
    scales_ok = isinstance(s.scales, tuple) and s.scales and all(_is_positive(c) for c in s.scales)
    require(scales_ok, "scales", s.scales, "a tuple of finite numbers > 0")
    require(is_integer(s.n_test) and s.n_test >= 2, "n_test", s.n_test, "an integer >= 2")
    require(_is_positive(s.tolerance), "tolerance", s.tolerance, "a finite number > 0")
    require(is_integer(s.max_iter) and s.max_iter >= 1, "max_iter", s.max_iter, "an integer >= 1")
    check_hardware(s.device, s.dtype)
    check_seeds(seeds)


def check_single_head(s, problem, seeds, optimisers):
    """Raise ValueError, naming the argument, for settings of Part II that cannot be run.

    Parameters
    ----------
    s : SingleHeadSettings
        Of :mod:`attn_lib.simulation.single_head`.
    problem : SingleHead
    seeds : object
        As given by the caller; an iterable has become a list.
    optimisers : tuple of str
        The names that are known.
    """
    require(is_integer(s.d) and s.d >= 2, "d", s.d, "an integer >= 2")
    require(s.n >= 1, "alpha", problem.alpha, f"large enough for round(alpha d^2) >= 1 at d = {s.d}")
    require(s.p >= 1, "kappa", problem.kappa, f"large enough for round(kappa d) >= 1 at d = {s.d}")
    names = {"task": ("seq2lab", "seq2seq"), "centring": ("trace", "empirical"), "optimiser": optimisers}
    for name, known in names.items():
        require(getattr(s, name) in known, name, getattr(s, name), f"one of {known}")
    for name in ("scale", "learning_rate", "tolerance"):
        require(_is_positive(getattr(s, name)), name, getattr(s, name), "a finite number > 0")
    for name, low in (("start", 0), ("n_test", 2), ("max_iter", 1)):
        value = getattr(s, name)
        require(is_integer(value) and value >= low, name, value, f"an integer >= {low}")
    threshold = s.rank_threshold
    require(is_real(threshold) and threshold >= 0, "rank_threshold", threshold, "a finite number >= 0")
    require(isinstance(s.noisy_test, bool), "noisy_test", s.noisy_test, "True or False")
    check_hardware(s.device, s.dtype)
    check_seeds(seeds)


def check_size(problem, d, n):
    """Raise ValueError unless tokens have at least two components and there is a sample.

    Parameters
    ----------
    problem : PositionalSemantic or GeneralAttention
    d : object
    n : int
        round(alpha d), of any value where d is no integer.
    """
    require(is_integer(d) and d >= 2, "d", d, "an integer >= 2")
    require(n >= 1, "alpha", problem.alpha, f"large enough for round(alpha d) >= 1 at d = {d}")


def check_hardware(device, dtype):
    """Raise ValueError unless the precision is known and the device is on this machine.

    Parameters
    ----------
    device, dtype : str
    """
    require(dtype in tuple(DTYPES), "dtype", dtype, f"one of {tuple(DTYPES)}")
    gpus = ["cuda", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    devices = ["cpu", *(gpus if torch.cuda.is_available() else [])]
    require(device in devices, "device", device, f"one of {devices} on this machine")


def free_memory(device):
    """Bytes that can be allocated on a device.

    Parameters
    ----------
    device : torch.device

    Returns
    -------
    int
    """
    return psutil.virtual_memory().available if device.type == "cpu" else torch.cuda.mem_get_info(device)[0]


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


def check_memory(n, n_test, n_tokens, d):
    """Raise ValueError, before anything is drawn, unless the data sets fit in the free memory of the CPU.

    Parameters
    ----------
    n, n_test, n_tokens, d : int
        Numbers of samples, trained on and fresh, and their sizes.
    """
    needed = 8 * max(n, n_test) * n_tokens * (2 * d + 25 * n_tokens)
    free = free_memory(torch.device("cpu"))
    allowed = f"smaller: {max(n, n_test)} samples at d = {d} need {needed:.3g} bytes, and {free:.3g} are free"
    require(needed <= free, "n_test" if n_test > n else "alpha d^2", max(n, n_test), allowed)


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


def _is_positive(value):
    return is_real(value) and value > 0
