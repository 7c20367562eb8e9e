"""The claims of arXiv 2509.24914 on what a full-rank layer learns: penalty, learning curves, spectrum, algorithms."""

from dataclasses import replace
from functools import cache

import numpy as np
from scipy.stats import wasserstein_distance

from attn_lib.claims.evidence import Claim, agreement, positive
from attn_lib.comparison import Estimate, estimate, extrapolate
from attn_lib.problems import MarchenkoPastur, PowerLaw, SingleHead
from attn_lib.simulation.erm import train_single_head
from attn_lib.simulation.gaussian_sensing import train_on_gaussians
from attn_lib.simulation.matrix_amp import train_by_matrix_amp
from attn_lib.spectra import learned_spectrum
from attn_lib.theory.matrix_evolution import evolve
from attn_lib.theory.matrix_replicon import replicon
from attn_lib.theory.single_head import solve

PROBLEM = SingleHead(alpha=0.5, lam=0.01, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
ALPHAS = (0.5, 2.0)
SIZES = {40: 16, 60: 8, 80: 4, 100: 4}  # d: data sets
SEED = 500_000  # away from the seeds of the chapters
FINITE_SIZE = 0.04  # fixed beforehand: the bias of order 1/d at d = 100
MEASURED = ("test_error", "train_loss", "rank")


def _problem(alpha):
    return replace(PROBLEM, alpha=alpha)


@cache
def _trained(alpha, d, n_seeds, dtype="float32", tolerance=1e-3, **options):
    """By default with errors below 1e-4 in losses and rank at the alphas above."""
    seeds = range(SEED + 1000 * d, SEED + 1000 * d + n_seeds)  # none twice: data of a seed begin alike at every d
    options = {"dtype": dtype, "tolerance": tolerance, "device": "cpu", **options}
    return train_single_head(_problem(alpha), d=d, seeds=seeds, **options)


def _same_minimum(d=30, seeds=range(SEED, SEED + 3)):
    """Message passing knows only S >= 0 and its trace; where it stands still, S minimises data term plus trace."""
    for alpha in ALPHAS:
        in_W = train_single_head(_problem(alpha), d=d, seeds=seeds, device="cpu")
        in_S = train_by_matrix_amp(_problem(alpha), d=d, seeds=seeds, n_iter=200, tolerance=1e-7)
        over_S = in_S.train_loss[:, -1] + in_S.penalty[:, -1]
        ratio = estimate((in_W.train_loss + in_W.penalty) / over_S)
        yield agreement(f"minimum over W divided by that over S, alpha = {alpha}, d = {d}", 1.0, ratio, absolute=1e-4)


def _universality(d=40, seeds=range(SEED, SEED + 12)):
    """Trained to relative errors of less than 1e-4 in both numbers."""
    tokens = train_single_head(PROBLEM, d=d, seeds=seeds, device="cpu", dtype="float32", tolerance=1e-3)
    gaussian = train_on_gaussians(PROBLEM, d=d, seeds=seeds, tolerance=1e-3)
    for name in ("test_error", "train_loss"):
        expected = estimate(getattr(gaussian, name))
        ratio = estimate(getattr(tokens, name) / expected.value)
        error = np.hypot(ratio.error, expected.error / expected.value)
        label = f"{name.replace('_', ' ')} with tokens divided by that with Gaussian measurements, d = {d}"
        yield agreement(label, 1.0, Estimate(ratio.value, float(error)), absolute=1 / d)


def _tokens(measurements=0.2):
    """At the same number of effective measurements, alpha (T^2 + T - 2) / 2, per d^2."""
    for lam in (1e-4, 0.01):
        errors, start = {}, None  # of three tokens: the solution of two, which is near
        for n_tokens in (2, 3):
            alpha = 2 * measurements / (n_tokens**2 + n_tokens - 2)
            s = solve(replace(PROBLEM, alpha=alpha, lam=lam, n_tokens=n_tokens), accuracy=5e-3, start=start)
            start = s.hats
            errors[n_tokens] = PROBLEM.target.second_moment - 2 * s.overlaps.m + s.overlaps.q
        label = f"tr (S - S0)^2 of three tokens divided by that of two, lambda = {lam}"
        yield agreement(label, 1.0, Estimate(errors[3] / errors[2], 0.0), absolute=0.01)


def _compared(name):
    for alpha in ALPHAS:
        theory = getattr(solve(_problem(alpha)), name)
        runs = {d: estimate(getattr(_trained(alpha, d, n), name)) for d, n in SIZES.items()}
        label = f"{name.replace('_', ' ')}, alpha = {alpha}"
        yield agreement(f"{label}, d = 100", theory, runs[100], relative=FINITE_SIZE)
        fit = extrapolate(list(runs), [e.value for e in runs.values()], [e.error for e in runs.values()])
        yield agreement(f"{label}, extrapolated in 1/d", theory, fit.limit, relative=FINITE_SIZE / 10)


def _spectrum(d=100):
    for alpha in ALPHAS:
        levels = (np.arange(d) + 0.5) / d
        predicted = learned_spectrum(solve(_problem(alpha))).quantile(levels)
        found = _trained(alpha, d, SIZES[d]).eigenvalues
        label = f"Wasserstein distance of the eigenvalues, alpha = {alpha}, d = {d}"
        distances = estimate([wasserstein_distance(eigenvalues, predicted) for eigenvalues in found])
        yield agreement(label, 0.0, distances, absolute=0.03)


def _rank_collapse(d=100):
    ranks, fine = {}, {"dtype": "float64", "tolerance": 1e-5}  # at few samples vanishing eigenvalues do so slowly
    for alpha in (0.02, 0.1, 0.5):
        options = fine if alpha < 0.5 else {}
        ranks[alpha] = solve(_problem(alpha)).rank, estimate(_trained(alpha, d, SIZES[d], **options).rank)
        yield agreement(f"rank, alpha = {alpha}, d = {d}", *ranks[alpha], absolute=1 / d)
    (low, low_measured), (high, high_measured) = ranks[0.02], ranks[0.5]
    gap = Estimate(high_measured.value - low_measured.value, float(np.hypot(high_measured.error, low_measured.error)))
    yield positive("rank at alpha = 0.5 above that at 0.02", high - low, gap)
    rank = PROBLEM.target.rank
    below = Estimate(rank - low_measured.value, low_measured.error)
    yield positive("rank of the target above that at alpha = 0.02", rank - low, below)


def _outliers(d=100, alpha=0.5, seeds=range(SEED, SEED + 4)):
    problem = replace(PROBLEM, alpha=alpha, target=PowerLaw(gamma=1.0, d=d))
    predicted = learned_spectrum(solve(problem)).outliers[::-1]
    trained = train_single_head(problem, d=d, seeds=seeds, dtype="float32", tolerance=1e-3, device="cpu")
    for k, outlier in enumerate(predicted[:3]):
        label = f"outlier {k + 1} of a power-law target, d = {d}"
        yield agreement(label, outlier.position, estimate(trained.eigenvalues[:, -1 - k]), relative=FINITE_SIZE)


def _sequences(d=60):
    for alpha in ALPHAS:
        pair = _trained(alpha, d, SIZES[d]), _trained(alpha, d, SIZES[d], task="seq2seq")
        for name in MEASURED:
            labels, sequences = (getattr(run, name) for run in pair)
            row = f"{name.replace('_', ' ')}, sequences divided by labels, alpha = {alpha}, d = {d}"
            yield agreement(row, 1.0, estimate(sequences / labels), absolute=3 / d)


def _random_starts(d=40, seeds=range(SEED, SEED + 4)):
    for alpha in ALPHAS:
        best = train_single_head(_problem(alpha), d=d, seeds=seeds, device="cpu")
        for scale in (0.1, 1.0):
            options = {"optimiser": "adam", "start": 1, "scale": scale, "dtype": "float32", "device": "cpu"}
            adam = train_single_head(_problem(alpha), d=d, seeds=seeds, **options)
            ratio = (adam.train_loss + adam.penalty) / (best.train_loss + best.penalty)
            label = f"minimum of Adam divided by that of L-BFGS, start of scale {scale}, alpha = {alpha}, d = {d}"
            yield agreement(label, 1.0, estimate(ratio), absolute=1e-3)
        theory = solve(_problem(alpha))
        value = theory.train_loss + theory.penalty
        measured = estimate(adam.train_loss + adam.penalty)
        yield agreement(f"that minimum, alpha = {alpha}, d = {d}", value, measured, relative=FINITE_SIZE * 100 / d)


def _message_passing(d=100, seeds=range(SEED, SEED + 8), n_iter=10):
    theory = evolve(PROBLEM, n_iter=n_iter)
    run = train_by_matrix_amp(PROBLEM, d=d, seeds=seeds, n_iter=n_iter)
    for name in ("m", "q", "Sigma"):
        for t in (1, 3, n_iter):
            predicted, measured = getattr(theory, name)[t], estimate(getattr(run, name)[:, t])
            yield agreement(f"{name}, iteration {t}, d = {d}", predicted, measured, relative=FINITE_SIZE)


def _amp_reaches_training(d=50, seeds=range(SEED, SEED + 4)):
    trained = train_single_head(PROBLEM, d=d, seeds=seeds, device="cpu")
    run = train_by_matrix_amp(PROBLEM, d=d, seeds=seeds, n_iter=20)
    S = trained.W @ trained.W.transpose(0, 2, 1) / (trained.settings.p * d) ** 0.5
    distance = ((run.S - S) ** 2).sum(axis=(1, 2)) / (S**2).sum(axis=(1, 2))
    yield agreement(f"squared distance after 20 iterations, relative, d = {d}", 0.0, estimate(distance), absolute=1e-5)


def _replicon(d=60, seeds=range(SEED, SEED + 8), first=4, last=10):
    """Two runs on the same data, one of them slightly kicked at the start, approach each other."""
    for alpha in (0.5, 1.0):
        theory = evolve(_problem(alpha), n_iter=last).growth[first:last]
        squares = []
        for n_iter in (first, last):
            runs = [train_by_matrix_amp(_problem(alpha), d=d, seeds=seeds, noise=e, n_iter=n_iter).S for e in (0, 1e-3)]
            squares.append(((runs[1] - runs[0]) ** 2).sum(axis=(1, 2)))
        rate = estimate((squares[1] / squares[0]) ** (1 / (last - first)))
        label = f"growth of the squared distance of two runs, per iteration, alpha = {alpha}, d = {d}"
        yield agreement(label, np.exp(np.log(theory).mean()), rate, relative=4 / d)
        stability = Estimate(1 - rate.value, rate.error)
        yield positive(f"1 - R, and 1 - this growth, alpha = {alpha}", 1 - replicon(solve(_problem(alpha))), stability)


PAPER = "arXiv 2509.24914, "
SIZE = (
    "4 standard errors; plus 4 % of the theory at d = 100, for the bias of order 1/d; plus 0.4 % when extrapolated, "
    "for terms of order 1/d^2"
)
CLAIMS = (
    Claim(
        id="sh-nuclear-norm",
        statement="Weight decay on W is a nuclear-norm penalty on S: both risks have the same minimum",
        source=PAPER + "mapping of the layer to matrix sensing",
        chapter="part2/full_rank_attention",
        compute=_same_minimum,
        tolerance="4 standard errors plus 1e-4, the accuracy of the two minimisations",
    ),
    Claim(
        id="sh-universality",
        statement="Training on tokens is training on Gaussian measurements, if the target has eigenvalues of order one",
        source=PAPER + "mapping of the layer to matrix sensing",
        chapter="part2/full_rank_attention",
        compute=_universality,
        tolerance="4 standard errors plus 1/d, the order of the finite-size bias of either",
    ),
    Claim(
        id="sh-tokens-rescale",
        statement="The number of tokens only rescales the sample complexity",
        source=PAPER + "effective number of measurements",
        chapter="part2/full_rank_attention",
        compute=_tokens,
        tolerance="1 %: the accuracy of both solutions",
        fails_because="exact only for lambda to 0 while the layer interpolates; elsewhere the loss weighs differently",
    ),
    Claim(
        id="sh-test-error",
        statement="The state evolution gives the test error of the trained layer",
        source=PAPER + "main result and first figure",
        chapter="part2/learning_curves",
        compute=lambda: _compared("test_error"),
        tolerance=SIZE,
    ),
    Claim(
        id="sh-train-loss",
        statement="The state evolution gives the training loss of the trained layer",
        source=PAPER + "main result and first figure",
        chapter="part2/learning_curves",
        compute=lambda: _compared("train_loss"),
        tolerance=SIZE,
    ),
    Claim(
        id="sh-rank",
        statement="The state evolution gives the rank of the trained layer",
        source=PAPER + "main result and first figure",
        chapter="part2/learning_curves",
        compute=lambda: _compared("rank"),
        tolerance=SIZE,
    ),
    Claim(
        id="sh-tasks",
        statement="Sequences and attention matrices as targets lead to the same test error, training loss and rank",
        source=PAPER + "equivalence of sequence-to-sequence and sequence-to-label tasks",
        chapter="part2/learning_curves",
        compute=_sequences,
        tolerance="4 standard errors plus 3/d, as both have a bias of order 1/d",
    ),
    Claim(
        id="sh-random-starts",
        statement="Gradient training from random starts reaches the minimum of the theory",
        source=PAPER + "experiments with Adam",
        chapter="part2/learning_curves",
        compute=_random_starts,
        tolerance="4 standard errors; plus 1e-3 between optimisers, where Adam is stopped; plus 4/d against the theory",
    ),
    Claim(
        id="sh-spectrum",
        statement="The learned spectrum is a soft threshold of the target plus a semicircle",
        source=PAPER + "spectrum of the trained layer",
        chapter="part2/spectrum",
        compute=_spectrum,
        tolerance="0.03 plus 4 standard errors: about the distance of the target's own eigenvalues from their law",
    ),
    Claim(
        id="sh-rank-collapse",
        statement="The rank of the learned map collapses when samples are few",
        source=PAPER + "spectrum of the trained layer",
        chapter="part2/spectrum",
        compute=_rank_collapse,
        tolerance="4 standard errors plus one eigenvalue, the step of a count",
    ),
    Claim(
        id="sh-outliers",
        statement="Strong directions of the target are learned as outliers of the spectrum",
        source=PAPER + "targets with power-law spectra",
        chapter="part2/spectrum",
        compute=_outliers,
        tolerance="4 standard errors plus 4 %: for eigenvalues of order sqrt(d) Gaussian fields are an approximation",
    ),
    Claim(
        id="sh-amp-state-evolution",
        statement="The state evolution describes every iteration of message passing",
        source=PAPER + "derivation by approximate message passing",
        chapter="part2/message_passing",
        compute=_message_passing,
        tolerance="4 standard errors plus 4 % of the theory, at d = 100",
    ),
    Claim(
        id="sh-amp-reaches-training",
        statement="Message passing reaches the layer of gradient training, unless a sample has two equally deep wells",
        source=PAPER + "derivation by approximate message passing",
        chapter="part2/message_passing",
        compute=_amp_reaches_training,
        tolerance="4 standard errors plus 1e-5: R^20 is below 1e-6, the rest is the accuracy of L-BFGS",
    ),
    Claim(
        id="sh-replicon",
        statement="The replicon is below one: two runs of message passing approach each other as predicted",
        source=PAPER + "convergence of message passing to global minima",
        chapter="part2/message_passing",
        compute=_replicon,
        tolerance="4 standard errors plus 4/d of the growth, where R exceeds the squared multiplier of overlaps",
    ),
)
