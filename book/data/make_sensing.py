"""Tokens against Gaussian measurements at finite d, and theory at two to four tokens: writes sensing.json beside this.

All problems have lam = 0.01 (unless said), Delta = 0.5,
kappa = 1 and, unless said, a Marchenko-Pastur target with kappa0 = 0.5. Parts:

- ``universality/TARGET/ALPHA/D``: two tokens; "tokens" and "gaussians", each with "test_error", "train_loss",
  "penalty", "m", "q" and "rank", one entry a seed. A seed has the same target in both. TARGET is "marchenko-pastur",
  or "power law" with gamma = 1;
- ``tokens/T/ALPHA/D``: the same for trainings with T tokens, on tokens only;
- ``theory/T/ALPHA2/LAM``: fixed point at T tokens and alpha = 4 ALPHA2/(T^2 + T - 2): "alpha", "m", "q", "Sigma",
  "test_error", "train_loss", "penalty", "rank", "error" (largest relative change from the last but one rule).
"""

from command import command
from store import by_name

from attn_lib.problems import MarchenkoPastur, PowerLaw, SingleHead
from attn_lib.simulation.gaussian_sensing import train_on_gaussians
from attn_lib.simulation.single_head import train_single_head
from attn_lib.theory.single_head import solve

RECORD = {
    "what": "Tokens against Gaussian measurements at d = 20 to 80; theory at two, three and four tokens.",
    "seeds": "from 0 on, as many as entries in each part",
    "tolerance": 0.01,
    "estimates": ["error"],
}
SEEDS = {
    ("marchenko-pastur", 0.5): {20: 96, 30: 64, 40: 32, 60: 12},
    ("marchenko-pastur", 2.0): {20: 64, 30: 40, 40: 20, 60: 6},
    ("power law", 0.5): {20: 64, 40: 24, 80: 6},
}
LAM, SMALL_LAM = 0.01, 1e-4
ALPHA2 = (0.1, 0.25, 0.5, 1.0, 2.0, 8.0)
NAMES = ("test_error", "train_loss", "penalty", "m", "q")


def single_head(alpha, target="marchenko-pastur", d=None, lam=LAM, n_tokens=2):
    law = MarchenkoPastur(kappa0=0.5) if target == "marchenko-pastur" else PowerLaw(gamma=1.0, d=d)
    return SingleHead(alpha=alpha, lam=lam, Delta=0.5, kappa=1.0, target=law, n_tokens=n_tokens)


def columns(trained):
    if not trained.converged.all():
        raise RuntimeError("not converged")
    rank = (trained.eigenvalues > 1e-3).mean(axis=1)
    return {**{name: getattr(trained, name).tolist() for name in NAMES}, "rank": rank.tolist()}


def universality(target, alpha, d, seeds, *, device):
    problem = single_head(alpha, target, d)
    tokens = train_single_head(problem, d=d, seeds=seeds, n_test=20_000, device=device)
    return {
        "tokens": columns(tokens),
        "gaussians": columns(train_on_gaussians(problem, d=d, seeds=seeds, n_test=20_000, device=device)),
    }


def tokens(n_tokens, alpha2, d, seeds, *, device):
    problem = single_head(4 * alpha2 / (n_tokens**2 + n_tokens - 2), n_tokens=n_tokens)
    return columns(train_single_head(problem, d=d, seeds=seeds, n_test=20_000, device=device))


def theory(n_tokens, alpha2, lam):
    alpha = 4 * alpha2 / (n_tokens**2 + n_tokens - 2)
    s = solve(single_head(alpha, lam=lam, n_tokens=n_tokens), accuracy={2: 1e-4, 3: 4e-3, 4: 1e-2}[n_tokens])
    values = {**s.overlaps._asdict(), **{n: getattr(s, n) for n in ("test_error", "train_loss", "penalty", "rank")}}
    error = max(abs(s.quadrature_error[name] / value) for name, value in values.items())
    return {"alpha": alpha, **{name: float(value) for name, value in values.items()}, "error": float(error)}


def parts():
    for T in (2, 3, 4):
        for alpha2 in ALPHA2:
            yield f"theory/{T}/{alpha2}/{LAM}", theory, (T, alpha2, LAM)
        yield f"theory/{T}/0.1/{SMALL_LAM}", theory, (T, 0.1, SMALL_LAM)
    for (target, alpha), sizes in SEEDS.items():
        for d, n_seeds in sizes.items():
            yield f"universality/{target}/{alpha}/{d}", universality, (target, alpha, d, range(n_seeds))
    for d, n_seeds in {30: 16, 45: 8, 60: 4}.items():
        yield f"tokens/3/2.0/{d}", tokens, (3, 2.0, d, range(n_seeds))


measure = by_name(parts)

if __name__ == "__main__":
    command(__file__)
