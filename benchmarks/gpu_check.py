"""Trainings on a GPU: whether they give the results of the CPU, how fast they are, and what the device could do.

Run by benchmarks/gpu.sh. Writes a JSON file whose "table" is Markdown for the page on performance. Parts that do not
fit into the time are left out, and named.
"""

import argparse
import json
import sys
import time
from dataclasses import fields
from datetime import date
from pathlib import Path

import numpy as np
import torch

from attn_lib.problems import GeneralAttention, MarchenkoPastur, PositionalSemantic, SingleHead
from attn_lib.simulation._hardware import DTYPES, free_memory
from attn_lib.simulation.amp import train_by_amp
from attn_lib.simulation.direct import train_direct
from attn_lib.simulation.dynamics import Start, train_by_descent
from attn_lib.simulation.erm import train_positional_semantic, train_single_head
from attn_lib.simulation.gaussian_sensing import train_on_gaussians
from attn_lib.simulation.general import train_general
from attn_lib.simulation.lbfgs import value_and_gradient
from attn_lib.simulation.matrix_amp import train_by_matrix_amp
from attn_lib.simulation.risk import AttentionRisk
from attn_lib.simulation.robustness import train_variant
from attn_lib.simulation.sampling import draw_sample, draw_target
from attn_lib.simulation.sensing import TokenMeasurement
from attn_lib.simulation.single_head_risk import AttentionLoss, FactorisedRisk

OUTPUT = Path(__file__).with_name("gpu.json")
SECONDS = 250  # after which no new part begins
ONE = PositionalSemantic(alpha=1.5, omega=0.3)
GENERAL = GeneralAttention(alpha=2, omega=0.3, A=[[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]], rank=2)
TWO = SingleHead(alpha=1.0, lam=0.05, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
DESCENT = {"starts": (Start(semantic=1.0), Start(random=0.3)), "n_steps": 10, "learning_rate": 0.15}

# A few iterations amplify the rounding of sums, taken in another order, by at most 1e5: of 1e-16, of 1e-7 with fewer
# digits to lose. Where they go on to the minimum, they end within the stopping tolerance of it, 1e-5 or 1e-4.
SHORT, CONVERGED = {"float64": 1e-10, "float32": 1e-3}, {"float64": 1e-4}


def trainings(tiny):
    """Name, training (with device and options to come), and tolerances by precision."""
    d, seeds, few = (12, range(2), 2) if tiny else (60, range(4), 4)
    short = {"seeds": seeds, "n_test": 200, "max_iter": few}
    untied = {"tied": False, "n_heads": 2, "target_heads": 2, "symmetric_target": False}
    double = {"float64": SHORT["float64"]}
    return [
        ("Part I", lambda **o: train_positional_semantic(ONE, d=5 * d, **short, **o), SHORT),
        ("general layer", lambda **o: train_general(GENERAL, d=3 * d, start="mixed", **short, **o), SHORT),
        (
            "gradient descent",
            lambda **o: train_by_descent(ONE, d=5 * d, seeds=seeds, n_test=200, **DESCENT, **o),
            SHORT,
        ),
        ("message passing", lambda **o: train_by_amp(ONE, d=2 * d, seeds=seeds, n_iter=3, **o), double),
        ("Part II", lambda **o: train_single_head(TWO, d=d, **short, **o), SHORT),
        ("S itself", lambda **o: train_direct(TWO, d=d, **short, **o), SHORT),
        ("two untied heads", lambda **o: train_variant(TWO, d=d, **short, **untied, **o), SHORT),
        ("Gaussian measurements", lambda **o: train_on_gaussians(TWO, d=d // 2, **short, **o), SHORT),
        ("matrix message passing", lambda **o: train_by_matrix_amp(TWO, d=d, seeds=seeds, n_iter=4, **o), double),
        ("Part I, minimum", lambda **o: train_positional_semantic(ONE, d=2 * d, seeds=seeds, **o), CONVERGED),
        ("Part II, minimum", lambda **o: train_single_head(TWO, d=d // 2, seeds=seeds, n_test=200, **o), CONVERGED),
    ]


COMPARED = ("train_loss", "test_error", "penalty", "q", "m", "theta")


def largest_difference(found, expected):
    """Of the numbers that both results have, relative to the largest of each array; infinite where one is no number."""
    names = {f.name for f in fields(expected)} & set(COMPARED)
    differences = []
    for name in names:
        a, b = np.asarray(getattr(found, name)), np.asarray(getattr(expected, name))
        finite = a.shape == b.shape and np.isfinite(a).all() and np.isfinite(b).all()
        differences.append(abs(a - b).max() / max(abs(b).max(), 1e-3) if finite else np.inf)
    return float(max(differences))


def agreement(device, tiny, left):
    rows, skipped = [], []
    for name, train, tolerances in trainings(tiny):
        if left() < 150:
            skipped.append(f"comparison: {name}")
            continue
        expected = train(device="cpu")
        for dtype, tolerance in tolerances.items():
            options = {} if "message passing" in name else {"dtype": dtype}
            difference = largest_difference(train(device=device, **options), expected)
            rows.append({"training": name, "dtype": dtype, "difference": difference, "tolerance": tolerance})
            print(f"  {name:24s} {dtype}  {difference:.1e} (at most {tolerance:.0e})")
    return rows, skipped


def seconds(call, device, at_least):
    """Least time of a call, of several in a row until they have taken so long."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda *_: None
    call(), wait(device)
    best, begin = np.inf, time.perf_counter()
    while time.perf_counter() - begin < at_least:
        start = time.perf_counter()
        call(), wait(device)
        best = min(best, time.perf_counter() - start)
    return best


def machine(device, tiny):
    """Rates of square matrix products in FLOP/s, and of copying in bytes/s."""
    rates = {}
    for dtype, kind in DTYPES.items():
        best = 0
        for size in (64, 128) if tiny else (2048, 4096, 8192):
            a, b = torch.randn(2, size, size, device=device, dtype=kind)
            best = max(best, 2 * size**3 / seconds(lambda a=a, b=b: a @ b, device, 0.01 if tiny else 0.3))
        rates[dtype] = best
    source = torch.ones(2**16 if tiny else 2**27, device=device, dtype=torch.float64)
    target = torch.empty_like(source)
    return {**rates, "copy": 2 * source.nbytes / seconds(lambda: target.copy_(source), device, 0.01 if tiny else 0.3)}


def single_head_risk(d, n_sets, device, dtype):
    """Of tokens and labels that are drawn on the device: only the time counts."""
    options = {"device": device, "dtype": DTYPES[dtype]}
    x, Y = torch.randn(n_sets, d * d, 2, d, **options), torch.rand(n_sets, d * d, 2, 2, **options)
    risk = FactorisedRisk(TokenMeasurement(x), AttentionLoss(Y / Y.sum(-1, keepdim=True), 1.0), 0.05, d=d, p=d)
    return risk, torch.randn(n_sets, d * d, **options)


def attention_risk(d, n_sets, device, dtype):
    """One data set, repeated."""
    sample = draw_sample(ONE, draw_target(d, 0), n=round(1.5 * d), seed=0)
    risk = AttentionRisk([sample], ONE.lam, device=device, dtype=DTYPES[dtype])
    risk.tokens = risk.tokens.repeat(n_sets, 1, 1)
    return risk, torch.randn(n_sets, 1, d, device=device, dtype=DTYPES[dtype])


def kernels(device, tiny, rates, left):
    """Loss and gradient: achieved FLOP/s of Part II, bytes/s of the tokens of Part I, as fractions of the rates."""
    rows, skipped = [], []
    free = free_memory(device)
    sizes = [("II", 12, 2), ("I", 20, 2)] if tiny else [
        *(("II", d, n) for d, n in ((100, 1), (100, 16), (200, 1), (200, 16), (400, 1), (400, 4), (1000, 1))),
        *(("I", d, n) for d, n in ((100, 1), (100, 512), (400, 1), (400, 128), (1000, 1), (1000, 64))),
    ]  # fmt: skip
    for part, d, n_sets in sizes:
        for dtype in DTYPES:
            size = DTYPES[dtype].itemsize
            numbers = n_sets * 2 * d * (d * d if part == "II" else round(1.5 * d))
            if 4 * numbers * size > free or left() < 90:
                skipped.append(f"loss and gradient, Part {part}, d = {d}, {n_sets} data sets, {dtype}")
                continue
            risk, Q = (single_head_risk if part == "II" else attention_risk)(d, n_sets, device, dtype)
            taken = seconds(lambda r=risk, Q=Q: value_and_gradient(r, Q), device, 0.01 if tiny else 0.5)
            row = {"part": part, "d": d, "data sets": n_sets, "dtype": dtype, "seconds": taken}
            if part == "II":  # two products of the tokens with a matrix, and two of the weights
                row["rate"], limit = (4 * numbers * d + 4 * n_sets * d**3) / taken, rates[dtype]
            else:  # the tokens are read twice; copying counts what is read and what is written
                row["rate"], limit = 2 * numbers * size / taken, rates["copy"]
            rows.append({**row, "fraction": row["rate"] / limit})
            share = f"{100 * rows[-1]['fraction']:.0f} %"
            print(f"  Part {part}, d = {d}, {n_sets} data sets, {dtype}: {1e3 * taken:.3g} ms, {share}")
            del risk, Q
    return rows, skipped


def timed_trainings(device, tiny, left):
    """Seconds a seed from the drawing of the data to the test error, on the device and on the CPU, and the memory."""
    rows, skipped = [], []

    def options(dtype):
        return {
            "dtype": dtype,
            **({"tolerance": 1e-3} if dtype == "float32" else {}),
            **({"n_test": 100} if tiny else {}),
        }

    def one(d, dtype):
        return lambda seeds, where: train_positional_semantic(ONE, d=d, seeds=seeds, device=where, **options(dtype))

    def two(d, dtype):
        return lambda seeds, where: train_single_head(TWO, d=d, seeds=seeds, device=where, **options(dtype))

    cases = [("I", 20, 2, one), ("II", 10, 2, two)] if tiny else [
        ("I", 400, 64, one), ("I", 1000, 32, one), ("II", 100, 16, two), ("II", 200, 4, two), ("II", 400, 1, two),
    ]  # fmt: skip
    for part, d, n_seeds, make in cases:
        for dtype in DTYPES:
            name = f"Part {part}, d = {d}, {dtype}"
            if left() < 40:
                skipped.append(f"training, {name}")
                continue
            train = make(d, dtype)
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
            begin = time.perf_counter()
            e = train(range(n_seeds), str(device))
            taken = (time.perf_counter() - begin) / n_seeds
            row = {"part": part, "d": d, "dtype": dtype, "seeds": n_seeds, "seconds": taken}
            row |= {"iterations": int(np.max(e.n_iter)), "converged": bool(e.converged.all())}
            if device.type == "cuda":
                row["peak bytes"] = torch.cuda.max_memory_allocated(device)
            flop = 6.0 * 2 * d**4 * float(np.mean(e.n_iter))  # of products with alpha = 1: three an iteration
            if part == "I" or flop / 2e10 < left() / 4:  # a core makes 2e10 a second
                begin = time.perf_counter()
                train(range(1), "cpu")
                row["seconds on the CPU"] = time.perf_counter() - begin
            else:
                skipped.append(f"the same on the CPU, {name}")
            rows.append(row)
            print(f"  {name}: {taken:.3g} s a seed, on the CPU {row.get('seconds on the CPU', np.nan):.3g} s")
    return rows, skipped


def markdown(r):
    """The tables of the page."""

    def table(head, rows):
        lines = [" | ".join(row) for row in (head, ["---"] * len(head), *rows)]
        return "\n".join(f"| {line} |" for line in lines)

    rates, made = r["rates"], r["made"]
    intro = (
        f"{made['device']}, PyTorch {made['torch']}, CUDA {made['cuda']}, {made['date']}; beside it {made['threads']} "
        f"threads of a CPU. Products of matrices: {rates['float64'] / 1e12:.3g} TFLOP/s in float64, "
        f"{rates['float32'] / 1e12:.3g} in float32 (no TF32); copying: {rates['copy'] / 1e9:.4g} GB/s."
    )
    if r["skipped"]:
        intro += " Left out for want of time or memory: " + "; ".join(r["skipped"]) + "."
    same = table(
        ["training", "precision", "largest difference from the CPU", "allowed"],
        [[v["training"], v["dtype"], f"{v['difference']:.1e}", f"{v['tolerance']:.0e}"] for v in r["agreement"]],
    )
    kernel = table(
        ["loss and gradient", "data sets", "precision", "ms", "rate", "of what the device does"],
        [
            [
                f"Part {v['part']}, d = {v['d']}",
                str(v["data sets"]),
                v["dtype"],
                f"{1e3 * v['seconds']:.3g}",
                f"{v['rate'] / 1e12:.3g} TFLOP/s" if v["part"] == "II" else f"{v['rate'] / 1e9:.4g} GB/s",
                f"{100 * v['fraction']:.0f} %",
            ]
            for v in r["kernels"]
        ],
    )
    training = table(
        ["training", "precision", "seeds at once", "iterations", "s a seed", "on the CPU", "ratio", "peak memory, GB"],
        [
            [
                f"Part {v['part']}, d = {v['d']}",
                v["dtype"],
                str(v["seeds"]),
                str(v["iterations"]),
                f"{v['seconds']:.3g}",
                f"{v['seconds on the CPU']:.3g}" if "seconds on the CPU" in v else "-",
                f"{v['seconds on the CPU'] / v['seconds']:.3g}" if "seconds on the CPU" in v else "-",
                f"{v['peak bytes'] / 1e9:.3g}" if "peak bytes" in v else "-",
            ]
            for v in r["trainings"]
        ],
    )
    return "\n\n".join([intro, same, kernel, training])


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="benchmarks/gpu.sh", description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1...; or cpu, to try this script")
    parser.add_argument("--tiny", action="store_true", help="sizes that take seconds on a CPU; the rates mean nothing")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    a = parser.parse_args(arguments)
    if a.device != "cpu" and not torch.cuda.is_available():
        print(f"No GPU that PyTorch {torch.__version__} can use: nothing was checked or timed.", file=sys.stderr)
        return 2
    torch.backends.cuda.matmul.allow_tf32 = False
    device, begin = torch.device(a.device), time.monotonic()

    def left():
        return np.inf if a.tiny else SECONDS - (time.monotonic() - begin)

    print(f"Results on {device} against those of the CPU: largest relative difference")
    same, skipped = agreement(a.device, a.tiny, left)
    print("Rates of the device")
    rates = machine(device, a.tiny)
    print("Loss and gradient")
    kernel, more = kernels(device, a.tiny, rates, left)
    print("Trainings")
    training, most = timed_trainings(device, a.tiny, left)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    made = {"device": name, "torch": torch.__version__, "cuda": torch.version.cuda, "date": date.today().isoformat()}
    made["threads"] = torch.get_num_threads()
    result = {"what": __doc__.splitlines()[0], "script": "benchmarks/gpu.sh", "made": made, "rates": rates}
    result |= {"agreement": same, "kernels": kernel, "trainings": training, "skipped": skipped + more + most}
    result["table"] = markdown(result)
    a.output.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{a.output}: after {time.monotonic() - begin:.0f} s")
    wrong = [f"{v['training']} in {v['dtype']}" for v in same if not v["difference"] <= v["tolerance"]]
    if wrong:
        print("Results that do not agree: " + "; ".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
