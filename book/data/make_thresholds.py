"""Around the thresholds of Part II, theory and simulation: writes thresholds.json beside this file.

Two tokens, kappa = 1; kappa0 = 0.5 unless said. Parts:

- ``interpolation/D/SEED``: noisy labels (Delta = 0.5) held by least squares in their logits, without penalty, over
  S = W W^T/sqrt(p d). Columns "alpha" and "residual" (norm of the residual divided by d, 0 where weights of zero
  training loss exist).
- ``recovery/D/SEED``: labels without noise, the same with the penalty lowered to 3e-4: least trace among interpolating
  matrices, but for an error of order lam. Columns "alpha" and "error", tr (S - S0)^2.
- ``recovery-0.25/D/SEED``: the same for kappa0 = 0.25.
- ``training/DELTA/D/ALPHA``: the attention loss, lam lowered step by step, each minimisation starting at the last W.
  "lam"; columns over lam, each with one entry per seed: "train_loss", "penalty", "test_error", "m", "q", "rank",
  "converged", "n_iter".
- ``peak/D/SEED``: the same at Delta = 0.5 and alpha = 0.25, where the peak falls off; one seed each.
- ``starts/SEED``: d = 40, Delta = 0.5, alpha = 0.2; "lam", and training loss plus penalty from three random starts
  ("random", lists over lam) and from the minimum of the logits' least squares ("logits").
- ``bayes/DELTA``: columns "alpha", "matrix_error", "test_error" of the Bayes-optimal estimator.
- ``tuned/ALPHA``: Delta = 0.5; "lam" and "test_error" of the state evolution at the weight decay of least test error.
- ``centring/KIND`` and ``centring-100/KIND``: the same at Delta = 0, alpha = 0.3, d = 50 and 100, student centred by
  the trace or by the mean over the data.
- ``theory/DELTA/LAM``: columns "alpha" and "train_loss", "test_error", "rank", "quadrature_error" (of the test error)
  of the state evolution; "failed" lists the alphas at which it was not solved.
"""

import numpy as np
import torch
from command import command
from scipy.optimize import minimize_scalar
from store import by_name

from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import MarchenkoPastur, SingleHead
from attn_lib.simulation.lbfgs import minimise
from attn_lib.simulation.logit_fit import LogitLoss, fit_logits
from attn_lib.simulation.sensing import TokenMeasurement
from attn_lib.simulation.single_head_risk import AttentionLoss, FactorisedRisk
from attn_lib.simulation.single_head_sampling import draw_matrix, draw_start, labelled_tokens
from attn_lib.theory.bayes_optimal import solve_bayes_optimal
from attn_lib.theory.single_head import solve

RECORD = {
    "what": "Interpolation and recovery of a single head: training and test errors, and both thresholds, at small lam.",
    "seeds": "the last number in the name of a part, or listed in it",
    "tolerance": 0.01,
    "estimates": ["quadrature_error"],
}
LAMS = (1e-2, 1e-3, 1e-4, 1e-5)
INTERPOLATION = {40: range(100, 112), 60: range(200, 208), 80: range(300, 304)}
RECOVERY = {30: range(400, 412), 40: range(500, 516), 60: range(600, 608), 80: range(800, 806)}
RECOVERY_QUARTER = {40: range(800, 812), 60: range(820, 828), 80: range(830, 836)}
ABOVE, BELOW, BELOW_QUARTER = (0.24, 0.22, 0.2, 0.185), (0.14, 0.16, 0.175, 0.19), (0.1, 0.11, 0.12, 0.13)
TRAINED = {40: ((0.05, 0.1, 0.13, 0.16, 0.2, 0.25, 0.35, 0.5), range(4)), 80: ((0.1, 0.2, 0.25, 0.5), range(2))}
TRAINED |= {d: ((0.1, 0.16, 0.2, 0.25, 0.5), seeds) for d, seeds in ((60, range(4)), (100, range(3)), (140, range(2)))}
NOISELESS = {d: ((0.2, 0.25), range(2)) for d in (60, 100, 140)}
PEAK = {60: range(900, 912), 100: range(920, 928)}
TUNED = (0.05, 0.1, 0.16, 0.25, 0.35, 0.5)
ALPHAS = (0.05, 0.08, 0.1, 0.12, 0.135, 0.15, 0.165, 0.18, 0.2, 0.23, 0.25, 0.27, 0.35, 0.5)
TOLERANCE, MAX_ITER = 1e-2, 4000


def problem_at(alpha, Delta, lam=1e-2, kappa0=0.5):
    return SingleHead(alpha=alpha, lam=lam, Delta=Delta, kappa=1.0, target=MarchenkoPastur(kappa0=kappa0))


def fitted(W, x, loss, lam, d, centring="trace"):
    """Minimum of loss + lam |W|^2 from W, with its risk."""
    risk = FactorisedRisk(TokenMeasurement(x, centring=centring), loss, lam, d=d, p=d)
    return minimise(risk, W, tolerance=TOLERANCE * 2 * max(lam, 1e-5) * d, max_iter=MAX_ITER), risk


def start(d, seed, device, k=0):
    return torch.as_tensor(draw_start(d, d, seed, k), device=device).reshape(1, -1)


def data(problem, d, seed, device, **options):
    """Target, and tokens and labels of one data set."""
    S0 = draw_matrix(problem, d, seed)
    n = options.pop("n", round(problem.alpha * d**2))
    x, Y = labelled_tokens(problem, S0, n=n, seed=seed, device=device, **options)
    return torch.as_tensor(S0, device=device), x[None], Y[None]


def interpolation(d, seed, *, device):
    W, residuals = None, []
    for alpha in ABOVE:
        fit = fit_logits(problem_at(alpha, 0.5, lam=1e-9), d=d, seeds=[seed], start=W, device=device)
        W = fit.W
        residuals.append(float(fit.residual[0]))
    return {"alpha": ABOVE, "residual": residuals}


def recovery(d, seed, alphas=BELOW, kappa0=0.5, *, device):
    errors = []
    for alpha in alphas:
        W = None
        for lam in (1e-1, 1e-2, 1e-3, 3e-4):
            fit = fit_logits(problem_at(alpha, 0.0, lam, kappa0), d=d, seeds=[seed], start=W, device=device)
            W = fit.W
        errors.append(float(fit.matrix_error[0]))
    return {"alpha": alphas, "error": errors}


def training(Delta, d, alpha, seeds, lams=LAMS, centring="trace", *, device):
    chains = [chain(problem_at(alpha, Delta), d, seed, lams, centring, device) for seed in seeds]
    columns = {name: [[row[i][name] for row in chains] for i in range(len(lams))] for name in chains[0][0]}
    return {"alpha": alpha, "d": d, "Delta": Delta, "seeds": list(seeds), "lam": lams, **columns}


def chain(problem, d, seed, lams, centring, device):
    S0, x, Y = data(problem, d, seed, device)
    _, fresh, fresh_Y = data(problem, d, seed, device, n=10_000, stream="test")
    W, rows = start(d, seed, device), []
    for lam in lams:
        minimum, risk = fitted(W, x, AttentionLoss(Y, 1.0), lam, d, centring)
        W = minimum.Q
        S = risk.matrix(W)
        offset = TokenMeasurement(x).measure(S).mean(1, keepdim=True) * (centring == "empirical")
        errors = AttentionLoss(fresh_Y, 1.0).errors(TokenMeasurement(fresh).measure(S) - offset)
        rows.append(
            {
                "train_loss": risk.loss(risk.fields(W))[0].item() / d**2,
                "penalty": lam * (W**2).sum().item() / d**2,
                "test_error": errors.mean().item(),
                "m": (S[0] * S0).sum().item() / d,
                "q": (S**2).sum().item() / d,
                "rank": (torch.linalg.eigvalsh(S[0]) > 1e-3).double().mean().item(),
                "converged": minimum.converged.item(),
                "n_iter": minimum.n_iter.item(),
            }
        )
    return rows


def starts(seed, d=40, lams=(1e-4, 1e-5), *, device):
    problem = problem_at(0.2, 0.5)
    _, x, Y = data(problem, d, seed, device)

    def losses(W):
        found = []
        for lam in lams:
            minimum, _ = fitted(W, x, AttentionLoss(Y, 1.0), lam, d)
            W = minimum.Q
            found.append(minimum.value.item() / d**2)
        return found

    def lowered(W, loss, down):
        for lam in down:
            W = fitted(W, x, loss, lam, d)[0].Q
        return W

    random = [start(d, seed, device, k) for k in range(3)]
    return {
        "lam": lams,
        "random": [losses(lowered(W, AttentionLoss(Y, 1.0), (1e-2, 1e-3))) for W in random],
        "logits": losses(lowered(random[0], LogitLoss(Y, 1.0), (1e-1, 1e-2, 1e-3, 1e-4))),
    }


def theory(Delta, lam):
    """From large alpha to small, each solution starting the next."""
    rows, failed, hats = [], [], None
    for alpha in ALPHAS[::-1]:
        try:
            s = solve(problem_at(alpha, Delta, lam), accuracy=1e-2, start=hats)
        except ConvergenceError:
            failed.append(alpha)
            hats = None
            continue
        hats = s.hats
        error = s.quadrature_error["test_error"]
        values = {"train_loss": s.train_loss, "test_error": s.test_error, "rank": s.rank, "quadrature_error": error}
        rows.insert(0, {"alpha": alpha, **{name: float(value) for name, value in values.items()}})
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return {"lam": lam, "Delta": Delta, "failed": failed, **columns}


def bayes(Delta):
    alphas = [*np.linspace(0.02, 0.18, 9), 0.185] if Delta == 0 else np.linspace(0.02, 0.5, 13)
    bounds = [solve_bayes_optimal(0.5, alpha=float(alpha), Delta=Delta) for alpha in alphas]
    return {name: [getattr(b, name) for b in bounds] for name in ("alpha", "matrix_error", "test_error")}


def tuned(alpha):
    def error(log_lam):
        return solve(problem_at(alpha, 0.5, float(np.exp(log_lam))), accuracy=1e-3).test_error

    best = minimize_scalar(error, bounds=(np.log(1e-3), np.log(0.5)), method="bounded", options={"xatol": 0.02})
    return {"alpha": alpha, "lam": float(np.exp(best.x)), "test_error": float(best.fun)}


def parts():
    for Delta in (0.0, 0.5):
        yield f"bayes/{Delta}", bayes, (Delta,)
    for seed in (0, 1, *range(700, 704)):
        yield f"starts/{seed}", starts, (seed,)
    for alpha in TUNED:
        yield f"tuned/{alpha}", tuned, (alpha,)
    for d in (40, 60):
        for seed in INTERPOLATION[d]:
            yield f"interpolation/{d}/{seed}", interpolation, (d, seed)
    for d in (30, 40):
        for seed in RECOVERY[d]:
            yield f"recovery/{d}/{seed}", recovery, (d, seed)
    for Delta in (0.5, 0.0):
        alphas, seeds = TRAINED[40]
        for alpha in alphas:
            yield f"training/{Delta}/40/{alpha}", training, (Delta, 40, alpha, seeds)
        for lam in LAMS:
            yield f"theory/{Delta}/{lam}", theory, (Delta, lam)
    for centring in ("trace", "empirical"):
        yield f"centring/{centring}", training, (0.0, 50, 0.3, range(2), LAMS[:3], centring)
    for d, each in ((60, recovery), (80, interpolation), (80, recovery)):
        for seed in (RECOVERY if each is recovery else INTERPOLATION)[d]:
            yield f"{each.__name__}/{d}/{seed}", each, (d, seed)
    for Delta, sizes in ((0.5, TRAINED), (0.0, NOISELESS)):
        for d, (alphas, seeds) in sizes.items():
            for alpha in alphas if d > 40 else ():
                yield f"training/{Delta}/{d}/{alpha}", training, (Delta, d, alpha, seeds)
    for centring in ("trace", "empirical"):
        yield f"centring-100/{centring}", training, (0.0, 100, 0.3, range(2), LAMS[:3], centring)
    for d, seeds in RECOVERY_QUARTER.items():
        for seed in seeds:
            yield f"recovery-0.25/{d}/{seed}", recovery, (d, seed, BELOW_QUARTER, 0.25)
    for d, seeds in PEAK.items():
        for seed in seeds:
            yield f"peak/{d}/{seed}", training, (0.5, d, 0.25, [seed])


measure = by_name(parts)

if __name__ == "__main__":
    command(__file__)
