"""benchmarks/gpu.sh, as far as a machine without a GPU can try it."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu_check  # noqa: E402


@dataclass
class Result:
    train_loss: np.ndarray
    m: np.ndarray


def test_identity_the_script_runs_and_tells(tmp_path):
    output = tmp_path / "gpu.json"
    command = [ROOT / "benchmarks" / "gpu.sh", "--device", "cpu", "--tiny", "--output", output]
    ended = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}
    )
    assert ended.returncode == 0, ended.stderr
    result = json.loads(output.read_text())
    assert {len(result[name]) for name in ("agreement", "kernels", "trainings")} == {18, 4}
    assert all(v["difference"] <= v["tolerance"] for v in result["agreement"])
    assert all(v["rate"] > 0 and v["fraction"] > 0 for v in result["kernels"])
    assert result["skipped"] == [] and not np.isnan(list(result["rates"].values())).any()
    assert result["table"].count("\n\n") == 3  # an introduction and three tables
    widths = [{line.count("|") for line in block.splitlines()} for block in result["table"].split("\n\n")[1:]]
    assert [len(w) for w in widths] == [1, 1, 1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_rejects_a_machine_without_a_gpu(capsys, tmp_path):
    assert gpu_check.main(["--output", str(tmp_path / "gpu.json")]) == 2
    assert "No GPU" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_rejects_results_that_differ(monkeypatch, capsys, tmp_path):
    good = Result(np.ones(2), np.zeros(2))
    assert gpu_check.largest_difference(Result(np.array([1.0, 1.1]), np.zeros(2)), good) == pytest.approx(0.1)
    assert gpu_check.largest_difference(Result(np.array([1.0, np.nan]), np.zeros(2)), good) == np.inf
    answers = iter([good, Result(np.array([1.0, 1.01]), np.zeros(2))])
    monkeypatch.setattr(
        gpu_check, "trainings", lambda tiny: [("a training", lambda **_: next(answers), {"float64": 1e-3})]
    )
    monkeypatch.setattr(gpu_check, "kernels", lambda *_: ([], []))
    monkeypatch.setattr(gpu_check, "timed_trainings", lambda *_: ([], []))
    assert gpu_check.main(["--device", "cpu", "--tiny", "--output", str(tmp_path / "gpu.json")]) == 1
    assert "do not agree: a training in float64" in capsys.readouterr().err


def test_identity_what_does_not_fit_is_named():
    _, skipped = gpu_check.agreement("cpu", True, lambda: 0)
    assert skipped[0] == "comparison: Part I" and len(skipped) == len(gpu_check.trainings(True))
    for part in (gpu_check.timed_trainings(torch.device("cpu"), True, lambda: 0),
                 gpu_check.kernels(torch.device("cpu"), True, {}, lambda: 0)):  # fmt: skip
        assert part[0] == [] and len(part[1]) == 4
