"""The papers are imported from the checkout, without anybody's folders."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def checkout(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.delenv("FOLDWISE_DATA", raising=False)
    monkeypatch.delenv("FOLDWISE_RUNS", raising=False)
