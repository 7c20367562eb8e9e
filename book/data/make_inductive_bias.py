"""Factorised against direct training, the weight decay tuned for both: writes inductive_bias.json beside this file.

Two tokens, beta = beta0 = 1, full width, Wishart
targets but for one power law (gamma = 1, d = 100). Parts:

- ``tuned/KAPPA0``, ``noise/DELTA``, ``rank/ALPHA``, ``power law``: state evolution at the lambda of least test
  error, as columns "kappa0", "Delta", "alpha", "floor" (error of the best multiple of the target) and, for
  both trainings, "lam", "test_error", "m", "q";
- ``trained/KAPPA0/ALPHA/D``: "folds", "seeds"; "floor" (error of the best multiple of the target on the fresh samples);
  for both trainings the grid "lams" of lambda, "validation" (seed, lambda), and for lambda as chosen by
  cross-validation, seed by seed, and by theory: "lam", "test_error" of a training on all samples. A seed has the
  same target and the same samples for both;
- ``size/KAPPA0/ALPHA/D``: "seeds", and for both trainings "lam" and "theory", the best lambda and its error, and
  "test_error" of layers trained with it.
"""

from dataclasses import replace

import torch
from command import command
from scipy.optimize import minimize_scalar
from store import by_name

from attn_lib.problems import MarchenkoPastur, PowerLaw, SingleHead
from attn_lib.simulation.direct import cross_validation, train_direct
from attn_lib.simulation.erm import train_single_head
from attn_lib.simulation.sensing import TokenMeasurement
from attn_lib.simulation.single_head_risk import attention_loss
from attn_lib.simulation.single_head_sampling import draw_matrix, labelled_tokens
from attn_lib.theory.error_decomposition import weights
from attn_lib.theory.tuning import optimal_lam

ALPHAS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8, 1.2, 2.0, 4.0)
RANKS = (0.1, 0.25, 0.5, 1.0)
LAMS = {False: (0.01, 0.02, 0.04, 0.08, 0.16, 0.32), True: (0.005, 0.01, 0.02, 0.04, 0.08)}
WITHIN = (2e-4, 2.0)
METHODS = {"factorised": False, "direct": True}
FOLDS, N_TEST, N_SEEDS = 5, 20_000, 4
MORE = {(1.0, 0.2): range(9950, 9962)}  # further seeds where the two trainings differ least
RECORD = {
    "what": "Factorised and direct training with tuned weight decay: state evolution and trained layers.",
    "seeds": f"{N_SEEDS} or more at each point, listed with each part",
    "tolerance": 0.01,
}


def problem_at(kappa0, alpha, Delta=0.5, lam=1.0):
    return SingleHead(alpha=alpha, lam=lam, Delta=Delta, kappa=1.0, target=MarchenkoPastur(kappa0=kappa0))


def tuned(problems):
    """State evolution."""
    rows = []
    for problem in problems:
        row = {"Delta": problem.Delta, "alpha": problem.alpha, "floor": weights(problem).irreducible}
        if isinstance(problem.target, MarchenkoPastur):
            row["kappa0"] = problem.target.kappa0
        for name, direct in METHODS.items():
            s = optimal_lam(problem, direct=direct, within=WITHIN, accuracy=1e-3)
            row[name] = {"lam": s.problem.lam, "test_error": s.test_error, "m": s.overlaps.m, "q": s.overlaps.q}
        rows.append(row)
    columns = {name: [float(row[name]) for row in rows] for name in rows[0] if name not in METHODS}
    for method in METHODS:
        columns[method] = {name: [float(row[method][name]) for row in rows] for name in rows[0][method]}
    return columns


def trained(kappa0, alpha, d, seeds, *, device):
    problem, fits = problem_at(kappa0, alpha), {}
    for name, direct in METHODS.items():
        lams = [lam / 4 if kappa0 > 1 else lam for lam in LAMS[direct]]
        validation = cross_validation(problem, d=d, seeds=seeds, lams=lams, direct=direct, folds=FOLDS, device=device)
        chosen = [lams[k] for k in validation.argmin(1)]
        best = optimal_lam(problem, direct=direct, within=WITHIN, accuracy=1e-2).problem.lam
        fits[name] = {
            "lams": lams,
            "validation": validation.tolist(),
            "cross-validated": {"lam": chosen, "test_error": errors(problem, d, seeds, chosen, direct, device)},
            "by theory": {"lam": best, "test_error": errors(problem, d, seeds, [best] * len(seeds), direct, device)},
        }
    floors = [floor(problem, d, seed) for seed in seeds]
    return {"folds": FOLDS, "seeds": list(seeds), "floor": floors, **fits}


def sized(kappa0, alpha, d, seeds, *, device):
    problem, found = problem_at(kappa0, alpha), {}
    for name, direct in METHODS.items():
        s = optimal_lam(problem, direct=direct, within=WITHIN, accuracy=1e-3)
        measured = errors(problem, d, seeds, [s.problem.lam] * len(seeds), direct, device)
        found[name] = {"lam": s.problem.lam, "theory": s.test_error, "test_error": measured}
    return {"seeds": list(seeds), **found}


def errors(problem, d, seeds, lams, direct, device):
    """Test errors of trainings on all samples, one lambda a seed."""
    found = []
    for seed, lam in zip(seeds, lams, strict=True):
        at = replace(problem, lam=lam)
        if direct:
            e = train_direct(at, d=d, seeds=[seed], n_test=N_TEST, device=device)
        else:
            e = train_single_head(at, d=d, seeds=[seed], n_test=N_TEST, device=device)
        if not e.converged.all():
            raise RuntimeError(f"{at}, seed {seed}: not converged")
        found.append(float(e.test_error[0]))
    return found


def floor(problem, d, seed):
    """Error of the best multiple of the target on the fresh samples that the errors are measured on."""
    S0 = draw_matrix(problem, d, seed)
    x, Y = (v[None] for v in labelled_tokens(problem, S0, n=N_TEST, seed=seed, stream="test"))
    z, loss = TokenMeasurement(x).measure(torch.as_tensor(S0)[None]), attention_loss(problem, "seq2lab", x, Y)
    return float(minimize_scalar(lambda s: loss.errors(s * z).mean().item(), bounds=(0.5, 1.0), method="bounded").fun)


def parts():
    seeds = iter(range(9000, 10_000, N_SEEDS))
    for kappa0 in RANKS:
        yield f"tuned/{kappa0}", tuned, ([problem_at(kappa0, alpha) for alpha in ALPHAS],)
    for kappa0 in RANKS:
        for alpha in (0.2, 0.5, 1.0):
            first = next(seeds)
            chosen = [*range(first, first + N_SEEDS), *MORE.get((kappa0, alpha), ())]
            yield f"trained/{kappa0}/{alpha}/40", trained, (kappa0, alpha, 40, chosen)
    for alpha in (0.1, 0.5, 0.8, 2.0):
        yield f"rank/{alpha}", tuned, ([problem_at(kappa0, alpha) for kappa0 in (1.25, 1.5, 2.0, 4.0)],)
    for Delta in (0.2, 2.0, 8.0):
        problems = [problem_at(kappa0, alpha, Delta) for kappa0 in (0.25, 1.0) for alpha in (0.5, 1.0)]
        yield f"noise/{Delta}", tuned, (problems,)
    power = PowerLaw(gamma=1.0, d=100)
    yield "power law", tuned, ([replace(problem_at(1.0, alpha), target=power) for alpha in (0.05, 0.5, 5.0)],)
    for kappa0, alpha, d in ((4.0, 0.5, 40), (4.0, 1.0, 40), (0.25, 0.5, 60)):
        first = next(seeds)
        yield f"trained/{kappa0}/{alpha}/{d}", trained, (kappa0, alpha, d, range(first, first + N_SEEDS))
    for d, n in ((24, 12), (64, 6)):
        yield f"size/1.0/0.2/{d}", sized, (1.0, 0.2, d, range(9900, 9900 + n))


measure = by_name(parts)

if __name__ == "__main__":
    command(__file__)
