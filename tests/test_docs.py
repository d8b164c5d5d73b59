"""Every Python block of the README and of docs/ runs, and prints what the text block after it says."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
CHANGING = re.compile(r"\d+(?= evaluations)|[\d.]+(?= s\b)|(?<=^hypergradient norm ).*")
"""What depends on the machine or on every detail of a method: counts of evaluations, times, residuals."""


@dataclass
class Block:
    """A fenced block: its language, text and first line's number."""

    language: str
    text: str
    line: int


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page."""
    out: list[Block] = []
    inside = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("```"):
            if not inside:
                out.append(Block(line[3:].strip(), "", number + 1))
            inside = not inside
        elif inside:
            out[-1].text += line + "\n"
    assert not inside, "a fenced block is not closed"
    return out


def examples(page: list[Block]) -> list[tuple[Block, str | None]]:
    """Python blocks with the output shown after them, if any."""
    follow = [*page[1:], None][: len(page)]
    return [
        (block, after.text if after is not None and after.language == "text" else None)
        for block, after in zip(page, follow, strict=True)
        if block.language == "python"
    ]


def compare(shown: str, printed: str, tolerance: float = 0.01) -> None:
    """Equal words, and numbers that agree to ``tolerance`` where they are the same everywhere."""
    ours, theirs = shown.strip().splitlines(), printed.strip().splitlines()
    assert [words(line) for line in ours] == [words(line) for line in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        assert numbers(other) == pytest.approx(numbers(mine), rel=tolerance), (mine, other)


def words(line: str) -> list[str]:
    return NUMBER.sub("#", CHANGING.sub("~", line)).split()


def numbers(line: str) -> list[float]:
    return [float(number) for number in NUMBER.findall(CHANGING.sub("~", line))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_examples_of_a_page_run_and_print_what_it_says(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "__main__"}
    for block, shown in examples(blocks(path.read_text(encoding="utf-8"))):
        # Blank lines in front keep the page's line numbers in a traceback.
        code = compile("\n" * (block.line - 1) + block.text, str(path), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("error")
            exec(code, names)
        if shown is not None:
            compare(shown, printed.getvalue())


def anchors(path: Path) -> set[str]:
    """What a link to a heading of a page may end with."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_links_lead_to_a_file_and_to_a_heading_of_it(path):
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", path.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        there = path.parent / target if target else path
        assert there.exists(), target
        if anchor:
            assert anchor in anchors(there), f"{target}#{anchor}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_rows_of_a_table_have_as_many_cells_as_its_head(path):
    cells = None
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            cells = None
        else:
            assert line.count("|") == (cells := cells or line.count("|")), line


def test_every_page_is_on_the_site():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for path in FILES[1:]:
        assert path.stem == "index" or re.search(rf"^{re.escape(path.stem)}$", index, re.MULTILINE), path.name


def test_the_site_names_no_page_that_is_not_there():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for name in re.findall(r"^([a-z][a-z0-9-]*)$", index, re.MULTILINE):
        assert (ROOT / "docs" / f"{name}.md").exists(), name


@pytest.mark.parametrize(
    ("shown", "printed", "equal"),
    [
        ("C = 3.52", "C = 3.5201", True),
        ("C = 3.52", "C = 3.7", False),
        ("C = 3.52", "lam = 3.52", False),
        ("C = 3.52", "C = 3.52\nmore", False),
        ("13 evaluations, 0.07 s", "9 evaluations, 1.5 s", True),
        ("took 0.07 s", "took 2 s", True),
        ("error 2.5 in 13 evaluations", "error 2.5 in 9 evaluations", True),
        ("error 2.5 in 13 evaluations", "error 2.9 in 13 evaluations", False),
        ("hypergradient norm 1e-7; at a kink 0", "hypergradient norm 3e-9; at a kink 2", True),
        ("took 0.07 s", "lasted 2 s", False),
        ("status converged", "status  converged ", True),
    ],
)
def test_the_comparison_can_fail(shown, printed, equal):
    if equal:
        compare(shown, printed)
    else:
        with pytest.raises(AssertionError):
            compare(shown, printed)


def test_blocks_are_found():
    page = blocks("a\n```python\nprint(1)\n```\nand\n```text\n1\n```\n```python\nx = 2\n```\n")
    assert [(block.language, block.line) for block in page] == [("python", 3), ("text", 7), ("python", 10)]
    assert [shown for _, shown in examples(page)] == ["1\n", None]
