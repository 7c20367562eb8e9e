"""The pages of the course against the chapters: which exercises there are, and how difficult they are."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
COURSE = ROOT / "book" / "course"
CHAPTERS = [
    ROOT / f"{chapter['file']}.md"
    for part in yaml.safe_load((ROOT / "_toc.yml").read_text())["parts"]
    for chapter in part["chapters"]
    if re.match(r"book/part[12]/", chapter["file"])
]


def exercises(text):
    """Labels of the exercises of a chapter: title, difficulty, whether it needs code."""
    found = {}
    for heading, label in re.findall(r"^`{3,}\{exercise(?:-start)?\} (.*)\n:label: (\S+)$", text, re.MULTILINE):
        title, in_brackets, after_colon = re.fullmatch(r"(.*?)(?: \(([^()]*)\)|: ([a-z, ]+))", heading).groups()
        about = in_brackets or after_colon
        grade = re.search("easy|medium|hard", about)
        found[label] = (title, grade[0] if grade else "medium", "computational" in about)
    return found


def listed(text):
    """The same of a list on the page of all exercises."""
    entries = re.findall(r"^- \{(?:num)?ref\}`(\S+)`: (.*) \((easy|medium|hard)(, code)?\)$", text, re.MULTILINE)
    return {label: (title, grade, bool(code)) for label, title, grade, code in entries}


ALL = {chapter: exercises(chapter.read_text()) for chapter in CHAPTERS}


def test_identity_list_of_exercises_is_that_of_the_chapters():
    page = (COURSE / "exercises.md").read_text()
    places = re.split(r"^\*\*\{doc\}`\.\./(\S+)`\*\*$", page, flags=re.MULTILINE)[1:]
    shown = {ROOT / "book" / f"{name}.md": listed(text) for name, text in zip(places[::2], places[1::2], strict=True)}
    assert list(shown) == CHAPTERS
    assert {chapter: list(entries.items()) for chapter, entries in shown.items()} == {
        chapter: list(entries.items()) for chapter, entries in ALL.items()
    }


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: f"{chapter.parent.name}/{chapter.stem}")
def test_identity_chapter_has_exercises_with_solutions(chapter):
    solved = re.findall(r"^`{3,}\{solution(?:-start)?\} (\S+)\n:class: dropdown$", chapter.read_text(), re.MULTILINE)
    assert solved == list(ALL[chapter])
    assert len(solved) >= 3
    assert any(needs_code for _, _, needs_code in ALL[chapter].values())


def test_identity_plan_names_exercises_and_whether_they_need_code():
    plan = (COURSE / "teachers.md").read_text()
    plan = plan[: plan.index("## Three projects")]
    every = {label: about for entries in ALL.values() for label, about in entries.items()}
    named = re.findall(r"\{ref\}`([\w-]+)`(?:\s\((code)\))?", plan)
    assert len(named) >= 24
    assert {label: bool(code) for label, code in named} == {label: every[label][2] for label, _ in named}


def test_identity_hard_exercises_of_the_plan_are_the_hard_ones():
    plan = (COURSE / "teachers.md").read_text()
    every = {label: about for entries in ALL.values() for label, about in entries.items()}
    for line in plan[: plan.index("## Three projects")].splitlines():
        for label in re.findall(r"\{ref\}`([\w-]+)`", line):
            assert ("Hard:" in line and line.index("Hard:") < line.index(label)) == (every[label][1] == "hard"), label


@pytest.mark.parametrize(
    ("heading", "about"),
    [
        ("Rows (easy)", ("Rows", "easy", False)),
        ("Rows (hard, computational)", ("Rows", "hard", True)),
        ("Rows: computational, harder", ("Rows", "hard", True)),
        ("Rows (computational)", ("Rows", "medium", True)),
    ],
)
def test_identity_difficulty_is_in_the_title(heading, about):
    assert exercises(f"````{{exercise}} {heading}\n:label: rows\n") == {"rows": about}


@pytest.mark.parametrize("name", ["teachers", "students", "exercises"])
def test_identity_course_is_linked_from_home(name):
    assert f"<course/{name}>`" in (ROOT / "book" / "home.md").read_text()
