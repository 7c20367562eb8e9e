r"""Empirical risk minimisation of Part I at finite d, many seeds, on CPU or GPU.

.. math:: \min_Q\; \sum_{\mu=1}^n \frac{|y^\mu - f_Q(x^\mu)|^2}{2d} + \frac\lambda2 |Q|^2, \qquad n = \alpha d

The loss is exact at any d (Gram matrices of :mod:`~attn_lib.simulation.attention`) and is minimised to a small
gradient by :func:`attn_lib.simulation.lbfgs.minimise`. It is not convex: which minimum is reached depends on the start.
"""

from dataclasses import dataclass
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from attn_lib.problems import PositionalSemantic
from attn_lib.simulation.attention import SIGNS, gram_matrices, squared_error, student_attention
from attn_lib.simulation.lbfgs import minimise
from attn_lib.simulation.sampling import draw_sample, draw_target, generator

__all__ = ["AttentionRisk", "Settings", "TrainedAttention", "train_positional_semantic"]

START_SCALES = {"semantic": (1.0,), "positional": (0.25, 0.5, 1.0), "random": (1.0,)}
DTYPES = {"float32": torch.float32, "float64": torch.float64}


class Settings(NamedTuple):
    """How the training was run; see :func:`train_positional_semantic`."""

    d: int
    n: int
    n_test: int
    start: str
    scales: tuple
    tolerance: float
    max_iter: int
    device: str
    dtype: str


@dataclass(frozen=True, kw_only=True)
class TrainedAttention:
    """Minima reached, one entry per seed; normalisations of the theory. See :func:`train_positional_semantic`."""

    problem: PositionalSemantic
    settings: Settings
    seeds: np.ndarray
    train_loss: np.ndarray
    test_error: np.ndarray
    test_error_se: np.ndarray
    q: np.ndarray
    m: np.ndarray
    theta: np.ndarray
    gradient_norm: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray
    scale: np.ndarray
    start_losses: np.ndarray
    Q: np.ndarray
    Q_star: np.ndarray


class AttentionRisk:
    r"""The risk as a function of the fields h (n, 2) of each run, for :func:`~attn_lib.simulation.lbfgs.minimise`.

    A row of S has one free entry, a_l = S_ll = logistic(h_l (h_l - h_other)), so the error of row l is a parabola,

    .. math:: |(T x - S(x+p))_\ell|^2/d = c_\ell - 2 b_\ell a_\ell + g\, a_\ell^2, \qquad g = |x_1+p_1-x_2-p_2|^2/d,

    with coefficients read off the Gram matrices once. Several runs may share one data set: parameters are
    (set, run, d), tokens are (set, 2n, d), and one pass over the tokens serves all runs.

    Parameters
    ----------
    samples : list of Sample
        One training set per seed, all of one size.
    lam : float
        Ridge penalty.
    device, dtype : torch.device, torch.dtype
    """

    def __init__(self, samples, lam, *, device, dtype):
        n, _, d = samples[0].x.shape
        self.lam = lam
        self.signs = torch.as_tensor(SIGNS, device=device, dtype=dtype).repeat(n) / d
        self.tokens = _stack([s.x.reshape(2 * n, d) for s in samples], device, dtype)
        b, c, g = zip(*(_row_parabolas(s.T, gram_matrices(s.x)) for s in samples), strict=True)
        self.b, self.c, self.g = (_stack(v, device, dtype)[:, None] for v in (b, c, g))

    def fields(self, Q):
        """h_l = x_l.Q/sqrt(d) + s_l 1_d.Q/d; (set, run, d) to (set, run, 2n)."""
        return (self.tokens @ Q.mT).mT / Q.shape[-1] ** 0.5 + Q.sum(-1, keepdim=True) * self.signs

    def adjoint(self, g):
        """Transpose of fields; (set, run, 2n) to (set, run, d)."""
        return (g @ self.tokens) / self.tokens.shape[-1] ** 0.5 + (g @ self.signs)[..., None]

    def loss(self, h):
        """Sum over samples of |y - f|**2/(2d), and its gradient with respect to h."""
        h = h.unflatten(-1, (-1, 2))
        other = h.flip(-1)
        a = torch.sigmoid(h * (h - other))
        slope = self.g * a - self.b  # d(parabola/2)/da
        loss = (self.c + (slope - self.b) * a).sum((-2, -1)) / 2
        slope = slope * a * (1 - a)
        gradient = slope * (2 * h - other) - slope.flip(-1) * other
        return loss, gradient.flatten(-2)


def _row_parabolas(T, gram):
    """Coefficients b (n, 2), c (n, 2), g (n, 1) of the parabola of each row in a_l = S_ll."""
    own, other = [0, 1], [1, 0]
    Tt = T @ gram.xt
    TT = np.einsum("nlk,nkj,nlj->nl", T, gram.xx, T)
    tt = gram.tt[:, other, other]
    b = Tt[:, own, own] - Tt[:, own, other] - gram.tt[:, own, other] + tt
    c = TT - 2 * Tt[:, own, other] + tt
    g = gram.tt[:, 0, 0] - 2 * gram.tt[:, 0, 1] + gram.tt[:, 1, 1]
    return b, c, g[:, None]


def _stack(arrays, device, dtype):
    if len(arrays) == 1:  # no copy on the CPU
        return torch.as_tensor(arrays[0][None], device=device, dtype=dtype)
    out = torch.empty((len(arrays), *arrays[0].shape), device=device, dtype=dtype)
    for i, a in enumerate(arrays):
        out[i] = torch.as_tensor(a)
    return out


def train_positional_semantic(
    problem, *, d, seeds, start="semantic", scales=None, n_test=2000, tolerance=1e-5, max_iter=1000,
    device=None, dtype="float64", progress=False,
):  # fmt: skip
    r"""Train the attention layer of Part I on drawn data sets, one per seed, from a named start.

    A seed gives the same Q*, training set and fresh samples whatever the start, the device and the dtype, so losses of
    two starts can be compared seed by seed. (A branch is what a start flows to: where a branch has disappeared, the
    start named after it ends elsewhere, and m and theta show it.)

    Parameters
    ----------
    problem : PositionalSemantic
    d : int
        Dimension of the tokens, >= 2.
    seeds : iterable of int
        Distinct, >= 0.
    start : str
        Direction of the start: "semantic" (Q*), "positional" (1_d) or "random" (N(0, I_d)).
    scales : tuple of float, optional
        The start is scale times this direction, one run per scale; the run of lowest loss is kept. Default: see
        START_SCALES.
    n_test : int
        Fresh samples per seed for the test error, >= 2.
    tolerance : float
        On |gradient|/(lam sqrt(d)), > 0. Where the risk is convex, it bounds the distance to the minimum, |dQ|/sqrt(d).
    max_iter : int
        A run that needs more iterations is returned with converged = False.
    device : str, optional
        "cpu", "cuda", ...; the default is "cuda" where there is one. Seeds are batched on a GPU only.
    dtype : str
        "float64" or "float32", of the minimisation; data and test error are float64 always.
    progress : bool
        Show a progress bar over seeds.

    Returns
    -------
    TrainedAttention
        problem, settings, and arrays over seeds, of the run that was kept:
        train_loss (minimum of the risk / d); test_error (mean of |y - f|**2/(2d) over fresh samples) and test_error_se
        (its standard error, at fixed Q); q = sigma**2 |Q|**2/d; m = abs(1_d.Q)/d; theta = sigma**2 abs(Q.Q*)/d;
        gradient_norm (as in tolerance), n_iter, converged; scale (of the start);
        start_losses (seed, scale), the losses of all runs; Q and Q_star (seed, d).

        Q and -Q are the same layer, so only absolute overlaps have a meaning: an overlap that vanishes in theory reads
        as a positive number of order d**-1/2. Q itself is given with the sign that makes its larger overlap
        (comparing m with theta/sigma**2) positive.

    Raises
    ------
    ValueError
        Naming the argument, its value and what is allowed.

    Source
    ------
    arXiv 2402.03902, whose gradient descent is replaced by L-BFGS on the same risk.

    Examples
    --------
    >>> from attn_lib.problems import PositionalSemantic
    >>> e = train_positional_semantic(PositionalSemantic(alpha=1.5, omega=0.3), d=50, seeds=range(2), device="cpu")
    >>> e.theta.shape, bool(e.converged.all())
    ((2,), True)
    """
    n = round(problem.alpha * d) if _is_integer(d) else 0
    scales = tuple(START_SCALES.get(start, ()) if scales is None else scales)
    seeds = list(seeds)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    settings = Settings(d, n, n_test, start, scales, tolerance, max_iter, str(device), dtype)
    _check(settings, problem, seeds)
    size = _chunk_size(settings)
    rows = []
    with tqdm(total=len(seeds), desc=f"{start} start", disable=not progress) as bar:
        for i in range(0, len(seeds), size):
            rows += _train(problem, settings, seeds[i : i + size])
            bar.update(len(seeds[i : i + size]))
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return TrainedAttention(problem=problem, settings=settings, seeds=np.array(seeds), **columns)


def _train(problem, settings, seeds):
    """Minimise from every scale, for all these seeds at once; one dict of results per seed."""
    d, device, dtype = settings.d, torch.device(settings.device), DTYPES[settings.dtype]
    targets = [draw_target(d, seed) for seed in seeds]
    samples = [draw_sample(problem, Q, n=settings.n, seed=seed) for Q, seed in zip(targets, seeds, strict=True)]
    risk = AttentionRisk(samples, problem.lam, device=device, dtype=dtype)
    directions = [_direction(settings.start, Q, seed) for Q, seed in zip(targets, seeds, strict=True)]
    starts = np.array(settings.scales)[:, None] * np.array(directions)[:, None, :]
    unit = problem.lam * d**0.5
    minimum = minimise(
        risk, torch.as_tensor(starts, device=device, dtype=dtype),
        tolerance=settings.tolerance * unit, max_iter=settings.max_iter,
    )  # fmt: skip
    runs = [v.cpu().numpy() for v in minimum]
    rows = []
    for seed, Q_star, Q, value, gradient_norm, n_iter, converged in zip(seeds, targets, *runs, strict=True):
        best = value.argmin()
        row = {
            "train_loss": value[best] / d, "gradient_norm": gradient_norm[best] / unit, "n_iter": n_iter[best],
            "converged": converged[best], "scale": settings.scales[best], "start_losses": value / d,
        }  # fmt: skip
        rows.append(row | _measure(problem, settings, seed, Q[best].astype(float), Q_star))
    return rows


def _measure(problem, settings, seed, Q, Q_star):
    """Overlaps, and the test error on fresh samples with its standard error."""
    m, theta = Q.mean(), problem.rho * (Q @ Q_star) / settings.d
    larger = m if abs(m) > abs(theta) / problem.rho else theta
    fresh = draw_sample(problem, Q_star, n=settings.n_test, seed=seed, stream="test")
    error = squared_error(fresh.T, student_attention(fresh.x, Q), gram_matrices(fresh.x)) / 2
    return {
        "test_error": error.mean(), "test_error_se": error.std(ddof=1) / len(error) ** 0.5,
        "q": problem.rho * (Q @ Q) / settings.d, "m": abs(m), "theta": abs(theta),
        "Q": Q if larger >= 0 else -Q, "Q_star": Q_star,
    }  # fmt: skip


def _direction(start, Q_star, seed):
    if start == "semantic":
        return Q_star
    if start == "positional":
        return np.ones_like(Q_star)
    return generator(seed, "start").standard_normal(len(Q_star))


def _chunk_size(settings):
    """Seeds trained together: one on a CPU (memory bandwidth decides there), half the free memory on a GPU."""
    device = torch.device(settings.device)
    if device.type != "cuda":
        return 1
    free, _ = torch.cuda.mem_get_info(device)
    return max(1, int(free / 2 / (2 * settings.n * settings.d * DTYPES[settings.dtype].itemsize)))


def _is_integer(value):
    return isinstance(value, Integral) and not isinstance(value, bool)


def _check(settings, problem, seeds):
    def require(ok, name, value, allowed):
        if not ok:
            raise ValueError(f"{name} = {value!r}: must be {allowed}")

    s = settings
    require(_is_integer(s.d) and s.d >= 2, "d", s.d, "an integer >= 2")
    require(s.n >= 1, "alpha", problem.alpha, f"such that n = round(alpha d) >= 1 (d = {s.d})")
    require(s.start in START_SCALES, "start", s.start, f"one of {tuple(START_SCALES)}")
    positive = all(isinstance(c, Real) and 0 < c < np.inf for c in s.scales)
    require(s.scales and positive, "scales", s.scales, "at least one finite number > 0")
    require(_is_integer(s.n_test) and s.n_test >= 2, "n_test", s.n_test, "an integer >= 2")
    require(isinstance(s.tolerance, Real) and 0 < s.tolerance < np.inf, "tolerance", s.tolerance, "a finite number > 0")
    require(_is_integer(s.max_iter) and s.max_iter >= 1, "max_iter", s.max_iter, "an integer >= 1")
    require(s.dtype in DTYPES, "dtype", s.dtype, f"one of {tuple(DTYPES)}")
    devices = ["cpu", "cuda", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    devices = devices if torch.cuda.is_available() else ["cpu"]
    require(s.device in devices, "device", s.device, f"one of {devices} on this machine")
    require(seeds and all(_is_integer(k) and k >= 0 for k in seeds), "seeds", seeds, "at least one integer >= 0")
    require(len(set(seeds)) == len(seeds), "seeds", seeds, "distinct")
