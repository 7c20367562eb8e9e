"""Stored results: they are what their scripts wrote, for the parts that the scripts have, and today's code agrees."""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "data"))

import command
import store

SHORT, LIMIT = 0.3, 1.0  # seconds

TOY = """
from pathlib import Path

from store import by_name

RECORD = {{"what": "Squares.", "seeds": "none", "tolerance": {{"device": 0.1, "else": 1e-3}}}}


def square(x):
    with Path(r"{log}").open("a") as file:
        file.write(f"{{x}} ")
    return {{"square": 1 / 3 * 3 * x**2 / (x != {bad}), "name": [None, "x"]}}


def on_a_device(device):
    return [float(len(device))]


def parts():
    for x in {xs}:
        yield f"square/{{x}}", square, (x,)
    yield "device", on_a_device, ()


measure = by_name(parts)
"""


def test_identity_every_result_has_its_script():
    results = {path.name for path in store.DATA.glob("*.json") if not path.name.startswith("published")}
    assert results == {store.result_of(script).name for script in store.scripts()}


@pytest.mark.parametrize("script", store.scripts())
def test_identity_stored_parts_are_what_the_script_wrote(script):
    file = store.committed(script)
    assert store.digest(file["parts"]) == file["sha256"]
    module = import_module(script)
    assert list(file["parts"]) == list(dict.fromkeys(name for name, _, _ in module.parts()))
    assert {name: file[name] for name in module.RECORD} == module.RECORD
    assert {part["made"] for part in file["parts"].values()} == set(range(len(file["made"])))


def short_part(script):
    """Of the parts that take a moment the longest, or else the shortest; None if that takes too long.

    What is downloaded is left out.
    """
    file = store.committed(script)
    seconds = {name: part["cpu_seconds"] for name, part in file["parts"].items() if part["cpu_seconds"] is not None}
    if "package" in file or min(seconds.values(), default=LIMIT + 1) > LIMIT:
        return None
    short = {name: s for name, s in seconds.items() if s <= SHORT}
    return max(short, key=short.get) if short else min(seconds, key=seconds.get)


@pytest.mark.parametrize("script", [script for script in store.scripts() if short_part(script)])
def test_agrees_with_the_code_of_today(script):
    """Within the tolerance that the script states, from the stopping tolerances of its solvers and trainings."""
    name = short_part(script)
    value = json.loads(import_module(script).measure(part=name, device="cpu")["value"])
    file = store.committed(script)
    largest, counts = store.difference(file["parts"][name]["value"], value, file.get("estimates", ()))
    assert largest <= store.tolerance_of(file, name) and not counts, (name, largest, counts)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Writes a script, runs it, and returns exit status, output, what was computed, and the result."""
    data, log = tmp_path / "book" / "data", tmp_path / "log"
    data.mkdir(parents=True)
    monkeypatch.setattr(store, "DATA", data)
    monkeypatch.setattr(store, "CELLS", tmp_path / ".cache")
    monkeypatch.syspath_prepend(data)

    def run(*options, xs=(1, 2), bad=None, version=1):
        log.write_text("")
        script = data / "make_toy.py"
        script.write_text(TOY.format(log=log, xs=xs, bad=bad) + f"\nVERSION = {version}\n")
        for cached in (store.made_by, sys.modules["attn_lib.sweep.code"]._digest):
            cached.cache_clear()
        sys.modules.pop("make_toy", None)
        monkeypatch.setattr(sys, "argv", ["make_toy.py", "--workers", "1", "--device", "cpu", *options])
        with pytest.raises(SystemExit) as status:
            command.command(str(script))
        result = store.committed("make_toy") if (data / "toy.json").exists() else None
        return status.value.code, capsys.readouterr(), log.read_text().split(), result

    yield run
    sys.modules.pop("make_toy", None)


def test_identity_only_what_is_missing_is_computed(run):
    status, output, computed, first = run("--dry-run")
    assert status == 0 and not computed and first is None and "3 parts, 3 missing" in output.out
    assert "and 3 parts whose time is not known" in output.out
    _, _, computed, first = run()
    assert sorted(computed) == ["1", "2"] and list(first["parts"]) == ["square/1", "square/2", "device"]
    assert first["parts"]["square/2"]["value"] == {"square": 4.0, "name": [None, "x"]}
    assert first["parts"]["device"]["value"] == [3.0] and first["sha256"] == store.digest(first["parts"])
    (made,) = first["made"]
    assert len(made["code"]) == 16 and made["device"].startswith("CPU") and "python" in made
    assert run()[2:] == ([], first)
    status, output, computed, second = run(xs=(1, 2, 3))
    assert computed == ["3"] and "3 made with other or unknown code" in output.out
    assert {**second["parts"], "square/3": None} == {**first["parts"], "square/3": None} | {
        name: second["parts"][name] for name in first["parts"]
    }
    assert [part["made"] for part in second["parts"].values()] == [0, 0, 1, 0] and second["made"][0] == made


def test_rejects_names_of_no_part_and_unknown_devices(run):
    status, output, _, result = run("--only", "cube")
    assert status == 2 and result is None
    assert output.err == "error: only = 'cube': must be the beginning of the name of a part, as 'square/1' is\n"
    status, output, _, result = run("--device", "mps")
    assert status == 2 and result is None and "device = 'mps': must be one of ['cpu'" in output.err


def test_identity_parts_made_with_other_code(run):
    _, _, _, first = run()
    status, output, _, _ = run("--outdated", "refuse", version=2)
    assert status == 2 and "3 parts were made with other code" in output.err
    _, _, computed, again = run("--outdated", "recompute", version=2)
    assert sorted(computed) == ["1", "2"] and again["made"][0]["code"] != first["made"][0]["code"]
    assert run("--outdated", "refuse", version=2)[0] == 0


def test_identity_anew_compares_and_resumes(run):
    _, _, _, first = run()
    stored = store.result_of("make_toy")
    changed = {name: {**part, "made": first["made"][0]} for name, part in first["parts"].items()}
    changed["square/2"]["value"]["square"] = 4.1
    store.write("make_toy", {"tolerance": 1e-3}, changed)
    text = stored.read_text()
    _, output, computed, _ = run("--anew", version=2)
    assert sorted(computed) == ["1", "2"] and stored.read_text() == text
    assert "| toy.json | 3 of 3 |" in output.out and "| 2 | 2.4e-02 | 1: square/2 |" in output.out
    _, output, computed, _ = run("--anew", version=2)
    assert not computed and "1: square/2" in output.out
    assert sorted(run("--anew", "--only", "square/1", version=3)[2]) == ["1"]


def test_identity_a_part_that_fails_stops_no_other(run):
    status, output, computed, result = run(bad=1)
    assert status == 1 and "failed: square/1\n  ZeroDivisionError" in output.out
    assert sorted(computed) == ["1", "2"] and list(result["parts"]) == ["square/2", "device"]
    assert run(bad=1)[2] == [] and run(bad=1)[0] == 1
    assert run("--retry", bad=1)[2] == ["1"]


@pytest.mark.parametrize(
    ("new", "largest", "counts"),
    [
        ({"a": [[1.0, 2.0], [3.0, 4.0]], "n": [3], "s": None}, 0.0, []),
        ({"a": [[1.0, 2.0], [3.0, 4.4]], "n": [3], "s": None}, 0.1, []),
        ({"a": [[1.0, 2.0], [3.0, None]], "n": [3], "s": None}, float("inf"), []),
        ({"a": [[1.0, 2.0], [3.0]], "n": [3], "s": None}, float("inf"), []),
        ({"n": [4], "s": "x"}, float("inf"), ["n", "s"]),
    ],
)
def test_closed_form_of_a_difference(new, largest, counts):
    old = {"a": [[1.0, 2.0], [3.0, 4.0]], "n": [3], "s": None}
    found = store.difference(old, new)
    assert found[0] == pytest.approx(largest, rel=1e-12) and found[1] == counts


@pytest.mark.parametrize(("rank", "largest"), [(0.225, 0.0), (0.175, 0.0), (0.25, 0.125), (0.4, 0.875)])
def test_closed_form_of_a_difference_of_ranks(rank, largest):
    """At d = 40 one eigenvalue is .025."""
    old, new = ({"d": 40, "rank": [[0.1, value]], "of": {"rank": [value]}} for value in (0.2, rank))
    assert store.difference({**old, "of": 1}, {**new, "of": 1})[0] == pytest.approx(largest, abs=2e-4)
    assert store.difference(old, new)[0] == pytest.approx(abs(rank - 0.2) / 0.2, rel=1e-12)


def test_rejects_an_edited_result(run):
    _, _, _, result = run()
    result["parts"]["square/1"]["value"]["square"] += 1e-9
    assert store.digest(result["parts"]) != result["sha256"]
    assert run("--workers", "0")[0] == 2
