"""Message passing at finite d and its two-time state evolution: writes message_passing.json beside this file."""

import numpy as np
import torch
from command import command
from store import by_name

from attn_lib.problems import PositionalSemantic
from attn_lib.simulation.amp import train_by_amp
from attn_lib.simulation.erm import train_positional_semantic
from attn_lib.simulation.lbfgs import minimise
from attn_lib.simulation.risk import AttentionRisk
from attn_lib.simulation.sampling import draw_sample
from attn_lib.theory import positional_semantic as ps
from attn_lib.theory.amp_evolution import plateau

RECORD = {
    "what": "Message passing: first iterations, stationary step, fates of the local variant; two-time theory.",
    "seeds": "0 to 107, listed with each part",
    "tolerance": 0.001,
}

OMEGA = 0.3
STARTS = ("semantic", "positional")
FIRST = {"signal": 0.3, "noise": 0.3, "V": 12.5}  # of Q^0, where state evolution is followed from its beginning
FOLLOWED = {500: 32, 1000: 16, 2000: 16}  # d: seeds
N_FOLLOWED = 15
PLATEAUS = (("positional", 1.5), ("positional", 1.0), ("semantic", 1.0))
PLATEAU_RUNS = {500: 8, 1000: 6, 2000: 4}  # d: seeds
N_PLATEAU = 80  # iterations, of which the second half is averaged
LOCAL_D, LOCAL_SEEDS, N_LOCAL = 200, 8, 200
LOCAL_ALPHAS = (0.5, 1.0, 1.5, 2.0)
LOCAL_DAMPINGS = (0.0, 0.3, 0.5, 0.7, 0.9)


def followed(start, d, seeds, *, device):
    """Overlaps, response and step of the first iterations, seed by seed."""
    problem = PositionalSemantic(alpha=1.5, omega=OMEGA)
    run = train_by_amp(problem, d=d, seeds=seeds, start=start, n_iter=N_FOLLOWED, device=device, **FIRST)
    columns = {name: getattr(run, name).tolist() for name in ("q", "m", "theta", "V", "step")}
    return {"d": d, "seeds": list(seeds), "diverged": int(run.diverged.sum()), **columns}


def near_fixed_point(problem, start):
    """Parameters of a Q^0 with the overlaps and the response of the fixed point."""
    overlaps = ps.solve(problem, start).overlaps
    signal = overlaps.theta / problem.rho + overlaps.m
    return {"signal": signal, "noise": float(np.sqrt(overlaps.q / problem.rho - signal**2)), "V": overlaps.V}


def stationary(start, alpha, d, seeds, *, device):
    """Averages over the second half of long runs; minima reached from their ends and from informed starts."""
    problem = PositionalSemantic(alpha=alpha, omega=OMEGA)
    first = near_fixed_point(problem, start)
    run = train_by_amp(problem, d=d, seeds=seeds, start=start, n_iter=N_PLATEAU, device=device, **first)
    half = N_PLATEAU // 2
    part = {"alpha": alpha, "d": d, "seeds": list(seeds), "diverged": int(run.diverged.sum())}
    for name in ("q", "m", "theta", "V", "step", "train_loss"):
        part[name] = getattr(run, name)[:, half:].mean(axis=1).tolist()
    part["quiet"] = (run.step[:, -10:].max(axis=1) < 1e-6).tolist()
    informed = train_positional_semantic(problem, d=d, seeds=seeds, start=start, device=device)
    part["informed_loss"] = informed.train_loss.tolist()
    part["continued_loss"] = [descended(problem, *ends, device) for ends in zip(seeds, run.Q, run.Q_star, strict=True)]
    return part


def descended(problem, seed, Q, Q_star, device):
    """Loss divided by d of the minimum that L-BFGS reaches from Q."""
    d = len(Q)
    sample = draw_sample(problem, Q_star, n=round(problem.alpha * d), seed=seed)
    risk = AttentionRisk([sample], problem.lam, device=torch.device(device), dtype=torch.float64)
    start = torch.as_tensor(Q, device=device)[None, None]
    minimum = minimise(risk, start, tolerance=1e-5 * problem.lam * d**0.5, max_iter=1000)
    return minimum.value.item() / d


def two_times(start, alpha):
    """Stationary step and fraction of flips of the theory."""
    problem = PositionalSemantic(alpha=alpha, omega=OMEGA)
    return plateau(problem, ps.solve(problem, start).overlaps, log2_points=13)._asdict()


def local(start, alpha, damping, *, device):
    """Fates of runs with the local prox from the standard start."""
    problem = PositionalSemantic(alpha=alpha, omega=OMEGA)
    run = train_by_amp(
        problem,
        d=LOCAL_D,
        seeds=range(LOCAL_SEEDS),
        start=start,
        n_iter=N_LOCAL,
        damping=damping,
        prox="local",
        tolerance=1e-6,
        device=device,
        **FIRST,
    )
    fates = {"converged": int(run.converged.sum()), "diverged": int(run.diverged.sum())}
    iterations = float(np.median(run.n_iter[run.converged])) if run.converged.any() else None
    return {"seeds": list(range(LOCAL_SEEDS)), **fates, "iterations": iterations}


def parts():
    """Every part: its name and the call that computes it."""
    for d, n_seeds in FOLLOWED.items():
        for start in STARTS:
            yield f"followed/{start}/{d}", followed, (start, d, range(n_seeds))
    for start, alpha in PLATEAUS:
        yield f"two_times/{start}/{alpha}", two_times, (start, alpha)
    for start in STARTS:
        for alpha in LOCAL_ALPHAS:
            for damping in LOCAL_DAMPINGS:
                yield f"local/{start}/{alpha}/{damping}", local, (start, alpha, damping)
    for d, n_seeds in PLATEAU_RUNS.items():
        for start, alpha in PLATEAUS:
            yield f"stationary/{start}/{alpha}/{d}", stationary, (start, alpha, d, range(100, 100 + n_seeds))


measure = by_name(parts)

if __name__ == "__main__":
    command(__file__)
