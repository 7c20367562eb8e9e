"""The claims of arXiv 2509.24914 on where the error of a full-rank layer comes from."""

from attn_lib.claims.evidence import Claim, agreement
from attn_lib.comparison import Estimate
from attn_lib.problems import PowerLaw, SingleHead
from attn_lib.theory.error_decomposition import TOLERANCE, decompose
from attn_lib.theory.single_head import solve

PAPER = "arXiv 2509.24914, "


def _error_decomposition():
    """Both numbers are theory: the full one, and what the levels of the learned spectrum explain of it."""
    for gamma in (1.0, 1.5):
        target, start = PowerLaw(gamma=gamma, d=1000), None
        for alpha in (0.01, 0.1, 1.0):
            solution = solve(
                SingleHead(alpha=alpha, lam=0.4 * alpha**0.5, Delta=0.5, kappa=1.0, target=target), start=start
            )
            start, parts = solution.hats, decompose(solution)
            label = f"excess error, and the sum of its parts, gamma = {gamma}, alpha = {alpha}, d = 1000"
            yield agreement(label, parts.excess, Estimate(parts.total, 0.0), relative=TOLERANCE)


CLAIMS = (
    Claim(
        id="sh-error-decomposition",
        statement="Noise, unlearned directions, shrinkage and a wrong scale make up the excess error",
        source=PAPER + "decomposition of the error, power-law targets",
        chapter="part2/error_decomposition",
        compute=_error_decomposition,
        tolerance="5 % of the excess: what isolated levels leave out; no measurement enters",
    ),
)
