"""alpha_c and alpha_l over omega with errors, and by plain product rules: writes transitions.json beside this file.

Parts:

- ``alpha_c/OMEGA/coarse``, ``.../fine``, ``alpha_l/...``: {"alpha", "error"} of ``locate_alpha_c`` at two accuracies;
- ``recipe/alpha_c/OMEGA``, ``recipe/alpha_l/OMEGA``: the published recipe (rule of degree 7, losses of degree 11,
  damped steps to a residual of 1e-4) on the published omegas;
- ``product/OMEGA/DEGREE``: {"alpha_c", "alpha_l"} by Gauss-Hermite product rules, solved to a residual of 1e-6;
- ``curve/START/ALPHA``: the recipe and ``solve`` at omega = 0.3, at the alphas of the published curves.
"""

import json
from pathlib import Path

import numpy as np
from command import command
from scipy.optimize import brentq
from store import by_name

from attn_lib.problems import PositionalSemantic
from attn_lib.proximal import attention_diagonal
from attn_lib.theory import positional_semantic as ps
from attn_lib.theory import transitions
from attn_lib.theory.product_rule import damped_steps, gauss_hermite, rule_fixed_point, stroud_secrest

HERE = Path(__file__).parent
RECORD = {
    "what": "alpha_c and alpha_l over omega at two accuracies; the same by the published recipe and by product rules.",
    "seeds": "none",
    "tolerance": 0.001,
    "estimates": ["error"],
}
OMEGAS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.425)
PUBLISHED_ALPHA_L = (0.075, 0.275, 0.325, 0.38)  # on the published grid besides these
ACCURACIES = {"coarse": 3e-5, "fine": 5e-6}
PRODUCT_OMEGAS = (0.1, 0.3)
PRODUCT_POINTS = (4, 8, 13)  # per dimension: degrees 7, 15, 25
GUESS = {"alpha_c": (0.62, 0.5, 5.5), "alpha_l": (0.78, 0.6, 7.0)}  # rough quadratics in omega
PUBLISHED, CURVES = (
    json.loads((HERE / f"{name}.json").read_text()) for name in ("published", "published_fixed_points")
)
RECIPE = {"rule": stroud_secrest(), "loss_rule": gauss_hermite(6)}


def guess(name, omega):
    a, b, c = GUESS[name]
    return a + b * omega + c * omega**2


def located(name, omega, accuracy):
    locate = getattr(transitions, f"locate_{name}")
    found = locate(omega, accuracy=accuracy, guess=guess(name, omega))
    return {"alpha": float(found.alpha), "error": float(found.error)}


def by_recipe(name, omega):
    """The transition among what the published recipe returns; it begins each alpha anew."""
    return root(name, omega, lambda p, start: damped_steps(p, start, **RECIPE), RECIPE["loss_rule"])


def by_product_rule(omega, n):
    """Both transitions among the fixed points of a product rule, each solution begun from the last one."""
    rule, problem = gauss_hermite(n), PositionalSemantic(alpha=guess("alpha_l", omega), omega=omega)
    last = {start: ps.solve(problem, start).overlaps for start in ("semantic", "positional")}

    def solution(problem, start):
        found = rule_fixed_point(problem, last[start], rule)
        last[start] = found.overlaps
        return found

    return {name: root(name, omega, solution, rule) for name in GUESS}


def root(name, omega, solution, baseline_rule):
    """A root search without derivatives."""

    def difference(alpha):
        problem = PositionalSemantic(alpha=alpha, omega=omega)
        semantic = solution(problem, "semantic")
        if name == "alpha_c":
            return semantic.train_loss - solution(problem, "positional").train_loss
        return semantic.test_error - baseline_error(omega, baseline_rule)

    centre = guess(name, omega)
    return float(brentq(difference, 0.75 * centre, 1.25 * centre, xtol=1e-5))


def baseline_error(omega, rule):
    """Test error of the linear baseline by the same rule."""
    (x, y), weight = rule
    problem = PositionalSemantic(alpha=1.0, omega=omega)
    S11, _ = attention_diagonal(problem.sigma * x, problem.sigma * y)
    variance = (weight * S11**2).sum() - (weight * S11).sum() ** 2
    return float(2 * problem.sigma**2 * (1 - omega) ** 2 * variance)


def point(start, alpha):
    """Both solutions at omega = 0.3."""
    problem = PositionalSemantic(alpha=alpha, omega=0.3)
    recipe = damped_steps(problem, start, **RECIPE)
    exact = ps.solve(problem, start, accuracy=1e-5)
    columns = {}
    for name, s in (("recipe", recipe), ("converged", exact)):
        columns[name] = {**s.overlaps._asdict(), "train_loss": s.train_loss, "test_error": s.test_error}
        columns[name] = {key: float(x) for key, x in columns[name].items()}
    return {**columns, "collapsed": bool(exact.collapsed), "n_iter": recipe.n_iter, "residual": float(recipe.residual)}


def parts():
    for which, accuracy in ACCURACIES.items():
        for name in GUESS:
            for omega in OMEGAS:
                yield f"{name}/{omega}/{which}", located, (name, omega, accuracy)
    for omega in PUBLISHED_ALPHA_L:
        yield f"alpha_l/{omega}/coarse", located, ("alpha_l", omega, ACCURACIES["coarse"])
    for name in GUESS:
        for omega in PUBLISHED[name]:
            yield f"recipe/{name}/{omega}", by_recipe, (name, float(omega))
    for start in ("semantic", "positional"):
        for alpha in CURVES["theory"][start]["alpha"]:
            yield f"curve/{start}/{alpha}", point, (start, alpha)
    for omega in PRODUCT_OMEGAS:
        for n in PRODUCT_POINTS:
            yield f"product/{omega}/{2 * n - 1}", by_product_rule, (omega, n)


measure = np.errstate(all="raise", under="ignore")(by_name(parts))

if __name__ == "__main__":
    command(__file__)
