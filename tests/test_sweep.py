"""Sweeps: what is stored, resumed and recomputed; processes, folders and code that fail."""

import os
import platform
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from attn_lib import sweep
from attn_lib.problems import MarchenkoPastur, PositionalSemantic, PowerLaw, SingleHead
from attn_lib.sweep.code import made_by, sources
from attn_lib.sweep.command import axis
from attn_lib.sweep.store import Store

HERE = Path(__file__).parent
PRODUCT, FRAGILE = "sweep_measurements.product", "sweep_measurements.fragile"
QUIET = {"progress": False, "workers": 1}


def grid(alphas=(1.0, 2.0, 3.0), **axes):
    return sweep.grid(PositionalSemantic, omega=[0.3], alpha=list(alphas), **axes)


def command(measurement, folder, *axes, path=HERE, **options):
    """A sweep in a process of its own, and of its own group."""
    call = [sys.executable, "-m", "attn_lib", "sweep", "PositionalSemantic", measurement, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(path), "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*call, "omega=0.3", *axes], env=environment, start_new_session=True, **pipes, **options)


def calls(log):
    """How often each cell was computed."""
    return Counter(log.read_text().splitlines()) if log.exists() else Counter()


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.01)


def test_closed_form_of_a_table(tmp_path):
    cells = grid(d=[10, 20], seeds=range(3), batch=2)
    outcome = sweep.run(PRODUCT, cells, tmp_path, **QUIET)
    table = outcome.table
    np.testing.assert_array_equal(table["product"], table["alpha"] * table["d"] + table["seed"])
    rows = list(zip(table["alpha"].tolist(), table["d"].tolist(), table["seed"].tolist(), strict=True))
    assert rows == [(alpha, d, seed) for alpha in (1.0, 2.0, 3.0) for d in (10, 20) for seed in range(3)]
    assert table["vector"].shape == (18, 3) and not outcome.failed
    for name, column in sweep.read(tmp_path).items():
        np.testing.assert_array_equal(column, table[name])


def test_identity_targets_become_columns(tmp_path):
    target = [MarchenkoPastur(kappa0=0.5), PowerLaw(gamma=1.0, d=10)]
    cells = sweep.grid(SingleHead, alpha=[0.5], lam=[0.01], Delta=[0.0], kappa=[1.0], target=target)
    table = sweep.run(PRODUCT, cells, tmp_path, **QUIET).table
    assert table["target"].tolist() == ["MarchenkoPastur", "PowerLaw"]
    assert table["target.kappa0"].tolist() == [0.5, None] and table["target.d"].tolist() == [None, 10]


def test_identity_a_measurement_without_a_problem(tmp_path):
    cells = [sweep.Cell(options={"name": name, "size": 2}) for name in ("a", "abc")]
    table = sweep.run("sweep_measurements.without_problem", cells, tmp_path, **QUIET).table
    assert {name: table[name].tolist() for name in ("name", "size", "length", "device")} == {
        "name": ["a", "abc"], "size": [2, 2], "length": [2, 6], "device": ["abacus"] * 2,
    }  # fmt: skip
    record = Store(tmp_path).record(Store(tmp_path).keys()[0])
    assert record["problem"] is None and 0 <= record["cpu_seconds"] < 1
    with pytest.raises(ValueError, match="missing a required argument: 'problem'"):
        sweep.plan(PRODUCT, cells, tmp_path / "empty")


def test_identity_only_what_is_missing_is_computed(tmp_path):
    log, folder = tmp_path / "log", tmp_path / "cells"
    sweep.run(PRODUCT, grid([1.0, 2.0], log=[str(log)]), folder, **QUIET)
    sweep.run(PRODUCT, grid([1.0, 2.0, 3.0], log=[str(log)]), folder, **QUIET)
    assert sorted(calls(log).values()) == [1, 1, 1]
    assert sweep.plan(PRODUCT, grid([1, 2, 3], log=[str(log)]), folder).missing == {}  # the same numbers
    next(folder.glob("*.npz")).write_bytes(b"damaged")
    table = sweep.run(PRODUCT, grid([1.0, 2.0, 3.0], log=[str(log)]), folder, **QUIET).table
    assert sorted(calls(log).values()) == [1, 1, 2] and table["product"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("kill", [os.killpg, os.kill])
def test_identity_a_killed_sweep_resumes(tmp_path, kill):
    """With its workers: what they were at is lost. Without: they finish it, and it is not computed again."""
    log, folder = tmp_path / "log", tmp_path / "cells"
    axes = {"d": range(1, 9), "pause": [0.05], "log": [str(log)]}
    shown = ["alpha=1.0,2.0,3.0", "d=range:1:9", "pause=0.05", f"log={log}", "--workers=2"]
    process = command(PRODUCT, folder, *shown)
    try:
        wait_until(lambda: len(list(folder.glob("*.json"))) >= 5)
        kill(process.pid, signal.SIGKILL)
        done = len(list(folder.glob("*.json")))
        assert 5 <= done < 24
        table = sweep.run(PRODUCT, grid(**axes), folder, **QUIET).table
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    np.testing.assert_array_equal(table["product"], table["alpha"] * table["d"])
    assert len(calls(log)) == 24 and sum(calls(log).values()) <= (26 if kill is os.killpg else 24)
    left = Counter(path.suffix for path in folder.iterdir())
    assert left.pop(".partial", 0) <= 2  # what the two workers were writing
    assert left == {".json": 24, ".npz": 24}


def test_identity_two_sweeps_share_a_folder(tmp_path):
    log, folder = tmp_path / "log", tmp_path / "cells"
    axes = ["alpha=1.0,2.0,3.0", "d=range:1:11", "pause=0.03", f"log={log}", "--workers=1"]
    processes = [command(PRODUCT, folder, *axes) for _ in range(2)]
    outputs = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert set(calls(log).values()) == {1} and len(calls(log)) == 30
    table = sweep.read(folder)
    np.testing.assert_array_equal(table["product"], table["alpha"] * table["d"])


def test_identity_a_failing_cell_is_recorded(tmp_path):
    cells = grid(broken=[(2.0,)])
    for _ in range(2):
        outcome = sweep.run(FRAGILE, cells, tmp_path, **QUIET)
        assert outcome.table["twice"].tolist() == [2.0, 6.0]
        (failed,) = outcome.failed
        assert failed["error"] == "ZeroDivisionError: alpha = 2.0" and failed["problem"]["alpha"] == 2.0
    assert sweep.run(FRAGILE, cells, tmp_path, **QUIET).failed == [failed]
    (later,) = sweep.run(FRAGILE, cells, tmp_path, retry=True, **QUIET).failed
    assert later["run"] != failed["run"]


def check_deaths(tmp_path, **where):
    """One cell kills its process always, one only once, and one raises."""
    marker = tmp_path / "marker"
    axes = {"broken": [(2.0,)], "deadly": [(3.0,)], "once": [(4.0,)], "marker": [str(marker)]}
    outcome = sweep.run(FRAGILE, grid([1.0, 2.0, 3.0, 4.0, 5.0], **axes), tmp_path / "fragile", progress=False, **where)
    assert marker.exists() and outcome.table["twice"].tolist() == [2.0, 8.0, 10.0]
    errors = {record["problem"]["alpha"]: record["error"] for record in outcome.failed}
    assert set(errors) == {2.0, 3.0} and "ZeroDivisionError" in errors[2.0] and "process" in errors[3.0]


def test_identity_the_death_of_a_worker_stops_no_other_cell(tmp_path):
    check_deaths(tmp_path, workers=2)


def test_agrees_with_dask(tmp_path):
    """On two worker processes, also when they die."""
    distributed, dask = pytest.importorskip("distributed"), pytest.importorskip("dask")
    no_patience = dask.config.set({"distributed.scheduler.allowed-failures": 0})  # at the first death
    cells = grid(d=[10, 20], seeds=range(4), batch=2)
    local = sweep.run(PRODUCT, cells, tmp_path / "local", workers=2, progress=False).table
    with no_patience, distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        where = {"scheduler": cluster.scheduler_address}
        table = sweep.run(PRODUCT, cells, tmp_path / "dask", progress=False, **where).table
        check_deaths(tmp_path, **where)
    assert list(table) == list(local)
    for name in table:
        if name != "seconds":
            np.testing.assert_array_equal(table[name], local[name])


@pytest.mark.parametrize("place", ["file/cells", "/proc/cells"])
def test_rejects_an_unwritable_folder(tmp_path, place):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="cannot store results"):
        sweep.run(PRODUCT, grid(log=[str(tmp_path / "log")]), tmp_path / place, **QUIET)
    assert not calls(tmp_path / "log")


def test_rejects_a_full_disk(tmp_path):
    """A file may have no more than 4096 bytes: nothing is computed. Then a disk that is full in mid-run."""
    log, cells = tmp_path / "log", tmp_path / "cells"
    no_space = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))}
    fill = ("sweep_measurements.fills_the_disk", tmp_path / "more", "alpha=1.0,2.0,3.0", "bytes_left=100")
    first = command(PRODUCT, cells, "alpha=1.0", f"log={log}", "--workers=1", **no_space)
    for process in (first, command(*fill, "--workers=2")):
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 2 and "cannot store results: File too large" in errors
    assert not calls(log) and not list(cells.iterdir())


def test_identity_changed_code_is_noticed(tmp_path):
    folder, module = tmp_path / "cells", tmp_path / "changing.py"

    def outcome(factor, comment, *options):
        module.write_text(f'"""{comment}"""\n\n\ndef f(problem):\n    return {{"y": {factor} * problem.alpha}}\n')
        process = command("changing.f", folder, "alpha=1.0,2.0", "--workers=1", *options, path=tmp_path)
        _, errors = process.communicate(timeout=60)
        return process.returncode, errors, sweep.read(folder)["y"].tolist()

    assert outcome(2, "Once.")[::2] == (0, [2.0, 4.0])
    assert outcome(2, "A docstring is no code.")[::2] == (0, [2.0, 4.0])
    code, errors, y = outcome(3, "Once.")
    assert code == 2 and "2 cells were made with another version of code" in errors and y == [2.0, 4.0]
    assert outcome(3, "Once.", "--outdated=recompute")[::2] == (0, [3.0, 6.0])


def test_identity_other_versions_are_noticed(tmp_path):
    cells = grid([1.0, 2.0])
    sweep.run(PRODUCT, cells, tmp_path, **QUIET)
    record = next(tmp_path.glob("*.json"))
    record.write_text(record.read_text().replace(platform.python_version(), "3.0.0"))
    with pytest.raises(ValueError, match="1 cells were made with another version of python"):
        sweep.plan(PRODUCT, cells, tmp_path)
    kept, again = (sweep.plan(PRODUCT, cells, tmp_path, outdated=outdated) for outdated in ("keep", "recompute"))
    assert len(kept.done) == 2 and list(again.missing) == [record.stem] and kept.outdated == {record.stem: ["python"]}


def test_identity_sources_of_a_measurement():
    theory, libraries = sources("attn_lib.sweep.solved")
    assert {"attn_lib.theory.positional_semantic", "attn_lib.theory.attention_prox", "attn_lib.gaussian"} <= set(theory)
    assert not any(name.startswith("attn_lib.simulation") for name in theory) and "torch" not in libraries
    assert {"code", "python", "numpy", "torch"} <= set(made_by("attn_lib.sweep.trained.both_starts"))
    assert "scikit-learn" in made_by("attn_lib.simulation.lasso.train_lasso")


def test_identity_a_dry_run_computes_one_cell(tmp_path):
    log = tmp_path / "log"
    process = command(
        PRODUCT, tmp_path / "cells", "alpha=linspace:1:9:9", f"log={log}", "pause=0.2", "--dry-run", "--workers=2"
    )
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and not errors
    assert "9 cells: 0 done, 9 missing, 0 failed" in output and sum(calls(log).values()) == 1
    plan = sweep.plan(PRODUCT, grid(np.linspace(1, 9, 9), log=[str(log)], pause=[0.2]), tmp_path / "cells")
    assert len(plan.done) == 1
    assert 0.8 <= plan.seconds(workers=2) <= 8  # 8 cells of 0.2 s or somewhat more, two at a time


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"measurement": "sweep_measurements.nothing"}, "measurement = 'sweep_measurements.nothing': must be"),
        ({"measurement": "__main__.main"}, "measurement = '__main__.main': must be"),
        ({"measurement": "nothing"}, "measurement = 'nothing': must be"),
        ({"cells": []}, "cells = .*: must not be empty"),
        ({"cells": grid([1.0]) * 2}, "must be distinct"),
        ({"cells": grid(size=[1])}, "unexpected keyword argument 'size'"),
        ({"device": "cpu"}, "unexpected keyword argument 'device'"),
        ({"outdated": "yes"}, "outdated = 'yes': must be one of"),
        ({"workers": 0}, "workers = 0: must be an integer >= 1"),
        (
            {"measurement": "attn_lib.sweep.solved.single_head"},
            "problem of type PositionalSemantic: must be a SingleHead",
        ),
        ({"cells": [sweep.Cell(options={"seeds": (1, 2)})]}, "options = .*: must not have 'seeds'"),
        ({"cells": grid(d=[float("nan")])}, "options = .*: must be finite numbers"),
    ],
)
def test_rejects_bad_input(tmp_path, change, message):
    given = {"measurement": PRODUCT, "cells": grid(), "workers": 1, **change}
    with pytest.raises(ValueError, match=message):
        sweep.run(given.pop("measurement"), given.pop("cells"), tmp_path, progress=False, **given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"alpha": 1.0}, "alpha = 1.0: must be a list of values"),
        ({"alpha": []}, "alpha = .*: must not be empty"),
        ({"alpha": [-1.0]}, "alpha = -1.0: must be a finite number > 0"),
        ({"alpha": [1.0], "seeds": [0, 0]}, "seeds = .*: must be distinct"),
        ({"alpha": [1.0], "seeds": [-1]}, "seeds = -1: must be an integer >= 0"),
        ({"alpha": [1.0], "batch": 0}, "batch = 0: must be an integer >= 1"),
        ({}, "PositionalSemantic: must be given values of alpha"),
    ],
)
def test_rejects_a_bad_grid(axes, message):
    with pytest.raises(ValueError, match=message):
        sweep.grid(PositionalSemantic, omega=[0.3], **axes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("linspace:1:2:-3", "'linspace:1:2:-3': must be like"),
        ("geomspace:0:1:3", "'geomspace:0:1:3': must be like"),
        ("range:1:3:0", "'range:1:3:0': must be like"),
        ("MarchenkoPastur:kappa0", "'MarchenkoPastur:kappa0': must be like"),
        ("MarchenkoPastur:kappa0=1=2", "'MarchenkoPastur:kappa0=1=2': must be like"),
        ("MarchenkoPastur:kappa0=-1", "kappa0 = -1: must be a finite number > 0"),
    ],
)
def test_rejects_a_bad_axis(text, message):
    with pytest.raises(ValueError, match=message):
        axis(text)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("problem=3", "'problem': must not be the NAME"),
        ("batch=3", "'batch': must not be the NAME"),
        ("=3", "'': must not be the NAME"),
        ("--workers=-2", "workers = -2: must be an integer >= 1"),
        ("--device=abacus", "device = 'abacus': must be one of ["),
        # The devices of a cluster are not known here; what is wrong then is that this measurement has none.
        ("--device=abacus --scheduler=tcp://elsewhere:8786", "unexpected keyword argument 'device'"),
    ],
)
def test_rejects_a_bad_command_line(tmp_path, argument, message):
    process = command(PRODUCT, tmp_path / "cells", "alpha=1", *argument.split(), "--dry-run")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2 and message in errors and "Traceback" not in errors
    assert not (tmp_path / "cells").exists()


def test_rejects_a_folder_of_another_measurement(tmp_path):
    sweep.run(PRODUCT, grid(), tmp_path, **QUIET)
    with pytest.raises(ValueError, match="must not hold cells of another measurement"):
        sweep.plan(FRAGILE, grid(broken=[()]), tmp_path)
    with pytest.raises(ValueError, match="must hold finished cells"):
        sweep.read(tmp_path / "empty")
    assert len(Store(tmp_path).keys()) == 3
