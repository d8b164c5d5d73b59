"""The page on extending the package shows the files that are tested here."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "extending.md"
FILES = sorted(
    set(HERE.glob("*.py")) - set(HERE.glob("test_*.py")) - {HERE / "__init__.py", HERE / "trial.py"}
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_page_shows_the_file_literally(path):
    code = path.read_text(encoding="utf-8").split('"""\n\n', 1)[1]
    assert f"```python\n{code}```\n" in PAGE.read_text(encoding="utf-8"), f"{path.name} is not in {PAGE.name}"
