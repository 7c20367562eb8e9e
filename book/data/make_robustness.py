"""Layers that leave the assumptions of Part II, trained at finite d: writes robustness.json beside this file.

All problems have lambda = 0.1, Delta = 0.5,
kappa = 1, a Marchenko-Pastur target with kappa0 = 0.5, and two tokens, unless their name says something else. The
same seed has the same target, training set and noise in all parts with the same d, so that differences can be taken
seed by seed. Parts ``VARIANT/D/ALPHA``:

{"alpha", "d", "seeds"; "train_loss", "penalty", "test_error": one entry a seed; "rank", "asymmetry": lists over
seeds of lists over heads; "m", "q": of matrices over heads and target heads, and over heads and heads}.

The part ``narrow`` has untied layers with d = 96 and p = 8, the proportions of the heads of a transformer, trained
on a target whose singular values follow a power law: "singular_values" (the 8 that are not zero), a list over seeds.
"""

from command import command
from store import by_name

from attn_lib.problems import MarchenkoPastur, PowerLaw, SingleHead
from attn_lib.simulation.robustness import train_variant
from attn_lib.simulation.tokens import (
    Correlated,
    Rademacher,
    Sphere,
    StudentT,
    Ternary,
    Vocabulary,
    VocabularyGaussian,
)

LAM = 0.1
SEEDS = {40: range(5), 64: range(100, 103), 120: range(4)}
ALPHAS, FEW, ONE = (0.5, 1.0, 2.0, 4.0), (0.5, 2.0), (1.0,)
LARGE = (0.5, 2.0)
RATIOS = (1.0, 2.0, 4.0, 16.0, 64.0)
TWO = {"n_heads": 2, "target_heads": 2}
TOKENS = {
    "rademacher": Rademacher(),
    "sphere": Sphere(),
    "ternary 0.2": Ternary(0.2),
    "ternary 0.05": Ternary(0.05),
    "student 5": StudentT(5.0),
    "student 3": StudentT(3.0),
    "correlated 0.5": Correlated(0.5),
    "correlated 1": Correlated(1.0),
}
TWICE = ("rademacher", "student 5")
VARIANTS = {  # name: changes, alphas at d = 40, alphas at d = 64
    "tied": ({}, ALPHAS, (0.5, 1.0, 2.0)),
    "untied": ({"tied": False}, ALPHAS, ()),
    "untied, no symmetry": ({"tied": False, "symmetric_target": False}, ALPHAS, LARGE),
    "cross": ({"tied": False, "cross": True}, ALPHAS, (0.5, 1.0, 2.0)),
    "two heads for one, lam/2": ({"n_heads": 2, "lam": LAM / 2}, ALPHAS[:3], ()),
    "one head for two": ({"target_heads": 2}, (0.25, *ALPHAS), ()),
    "two heads for two, lam/2": ({**TWO, "lam": LAM / 2}, (0.25, *ALPHAS), ()),
    **{name: ({"tokens": law}, FEW, (2.0,) if name in TWICE else ()) for name, law in TOKENS.items()},
    **{f"vocabulary {r:g}": ({"tokens": Vocabulary(r)}, ONE, ONE if r == 4 else ()) for r in RATIOS},
    **{
        f"vocabulary {r:g}, Gaussian": ({"tokens": VocabularyGaussian(r)}, ONE, ONE if r == 4 else ())
        for r in RATIOS[:3]
    },
}
RECORD = {
    "what": "Errors, ranks and overlaps of layers with untied weights, two heads, or other tokens.",
    "seeds": "5 at d = 40, 3 at d = 64, 4 at d = 120, listed with each part",
    "tolerance": 0.01,
}


def trained(changes, alpha, d, *, device):
    changes = dict(changes)
    target = MarchenkoPastur(kappa0=0.5)
    problem = SingleHead(alpha=alpha, lam=changes.pop("lam", LAM), Delta=0.5, kappa=1.0, target=target)
    e = train_variant(problem, d=d, seeds=SEEDS[d], max_iter=5000, device=device, **changes)
    if not e.converged.all():
        raise RuntimeError(f"{changes}, alpha = {alpha}, d = {d}: not converged")
    names = ("train_loss", "penalty", "test_error", "rank", "asymmetry", "m", "q")
    return {"alpha": alpha, "d": d, "seeds": list(SEEDS[d])} | {name: getattr(e, name).tolist() for name in names}


def narrow(d, p, seeds, *, device):
    problem = SingleHead(alpha=0.5, lam=LAM, Delta=0.5, kappa=p / d, target=PowerLaw(gamma=1.0, d=d))
    e = train_variant(problem, d=d, seeds=seeds, tied=False, symmetric_target=False, max_iter=5000, device=device)
    if not e.converged.all():
        raise RuntimeError("narrow: not converged")
    return {"d": d, "p": p, "seeds": list(seeds), "singular_values": e.singular_values[:, 0, :p].tolist()}


def parts():
    for i, d in enumerate((40, 64)):
        for name, (changes, *alphas) in VARIANTS.items():
            for alpha in alphas[i]:
                yield f"{name}/{d}/{alpha:g}", trained, (changes, alpha, d)
    yield "cross/120/0.5", trained, (VARIANTS["cross"][0], 0.5, 120)
    yield "narrow", narrow, (96, 8, range(6))


measure = by_name(parts)

if __name__ == "__main__":
    command(__file__)
