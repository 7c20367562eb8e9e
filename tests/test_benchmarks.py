"""What is made of the record of the benchmarks; nothing is timed here."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import report

RESULTS = json.loads(report.RESULTS.read_text())


def benchmark(group, case, way, seconds, **known):
    stats = {"min": seconds, "median": 2 * seconds, "rounds": 3}
    return {"group": group, "extra_info": {"case": case, "way": way, **known}, "stats": stats}


def compared(*benchmarks):
    entries = [report.reduced(b) for b in benchmarks]
    report.compare(entries)
    return entries


MACHINE = [
    benchmark("machine", "matrix product, float64", "size 1", 1.0, flop=100),
    benchmark("machine", "matrix product, float64", "size 2", 1.0, flop=200),
    benchmark("machine", "memory", "read", 1.0, bytes=50),
]


def test_identity_readme_and_page_show_the_results():
    assert report.table(RESULTS) in report.README.read_text()
    assert f'\nMEASURED = "{RESULTS["date"]}"\n' in report.PAGE.read_text()


def test_closed_form_ratio_is_per_point_and_within_the_case():
    *_, ours, plain, other = compared(
        *MACHINE,
        benchmark("prox", "I", "attn_lib", 2.0, points=100),
        benchmark("prox", "I", "plain", 3.0, points=1),
        benchmark("prox", "II", "plain", 3.0, points=1),
    )
    assert plain["ratio"] == 150.0
    assert "ratio" not in ours and "ratio" not in other


def test_closed_form_fraction_of_the_best_rate_of_the_machine():
    *_, product, read = compared(
        *MACHINE,
        benchmark("kernel", "d = 1, float64", "attn_lib", 2.0, flop=100),
        benchmark("kernel", "d = 2, float64", "attn_lib", 2.0, bytes=25),
    )
    assert (product["fraction"], read["fraction"]) == (0.25, 0.25)


@pytest.mark.parametrize(
    ("seconds", "text"), [(12.3, "12 s"), (0.5, "500 ms"), (2.34e-3, "2.3 ms"), (2.6e-6, "2.6 µs")]
)
def test_closed_form_times_in_words(seconds, text):
    assert report.written(seconds) == text


def test_rejects_a_file_without_the_place(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing\n")
    with pytest.raises(SystemExit, match="must occur once, not 0 times"):
        report.replace(page, "(a)b(c)", "text")


def test_rejects_a_partial_record_and_keeps_the_results(tmp_path, monkeypatch, capsys):
    info = {"cpu": {}, "machine": "x", "python_version": "3"}
    partial = {"benchmarks": MACHINE, "machine_info": info, "datetime": "2026-01-01T00:00:00"}
    path = tmp_path / "record.json"
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results.json")
    for text in ("{", "{}", json.dumps({**partial, "benchmarks": []}), json.dumps(partial)):
        path.write_text(text)
        with pytest.raises(SystemExit) as status:
            report.main(path)
        assert status.value.code == 2 and "not a whole record" in capsys.readouterr().err
        assert not report.RESULTS.exists()
