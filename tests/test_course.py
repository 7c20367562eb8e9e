"""The pages of the course against the chapters: which exercises there are, and how difficult they are."""

import re
from pathlib import Path

import pytest
import yaml

from attn_lib.exercises import answers

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
        about = re.fullmatch(r"(.*) \((easy|medium|hard)(, computational)?\)", heading)
        assert about, f"{heading!r} must end like (easy) or (medium, computational)"
        title, grade, code = about.groups()
        found[label] = (title, grade, bool(code))
    return found


def between_exercise_and_solution(text, label):
    """What stands there in a chapter: the text of the exercise, its hint, the cell that checks an answer."""
    return re.search(
        rf"^:label: {re.escape(label)}$(.*?)^`{{3,}}\{{solution(?:-start)?\}} {re.escape(label)}$",
        text,
        re.MULTILINE | re.DOTALL,
    )[1]


def listed(text):
    """The same of a list on the page of all exercises."""
    entries = re.findall(r"^- \{ref\}`(\S+)`: (.*) \((easy|medium|hard)(, code)?\)$", text, re.MULTILINE)
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


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: f"{chapter.parent.name}/{chapter.stem}")
def test_identity_every_exercise_has_one_hint(chapter):
    text = chapter.read_text()
    hints = {
        label: between_exercise_and_solution(text, label).count("{admonition} Hint\n:class: dropdown\n")
        for label in ALL[chapter]
    }
    assert set(hints.values()) == {1}, hints


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: f"{chapter.parent.name}/{chapter.stem}")
def test_identity_a_computed_answer_of_the_chapter_can_be_checked(chapter):
    """Before the solution with no answer; in the solution with the computed one, which test_pages finds to be right."""
    text = chapter.read_text()
    asked = [
        label for label in ALL[chapter] if f'check("{label}", answer)' in between_exercise_and_solution(text, label)
    ]
    assert asked
    assert all(ALL[chapter][label][2] for label in asked)
    for label in asked:
        solution = re.search(
            rf"^`{{3,}}\{{solution-start\}} {re.escape(label)}$(.*?)\{{solution-end\}}", text, re.MULTILINE | re.DOTALL
        )[1]
        assert f'check("{label}", ' in solution
    assert set(asked) == set(re.findall(r'\bcheck\("([\w-]+)"', text))


def test_identity_every_answer_belongs_to_a_chapter():
    text = "".join(chapter.read_text() for chapter in CHAPTERS)
    assert set(re.findall(r'\bcheck\("([\w-]+)"', text)) == set(answers())


@pytest.mark.parametrize("heading", ["Rows", "Rows (computational)", "Rows: easy", "Rows (easy, partly computational)"])
def test_rejects_a_title_without_a_difficulty(heading):
    with pytest.raises(AssertionError, match="must end like"):
        exercises(f"````{{exercise}} {heading}\n:label: rows\n")


@pytest.mark.parametrize("name", ["teachers", "students", "exercises"])
def test_identity_course_is_linked_from_home(name):
    assert f"<course/{name}>`" in (ROOT / "book" / "home.md").read_text()
