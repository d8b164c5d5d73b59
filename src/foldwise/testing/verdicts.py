"""What a referee says of a search."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Fault", "Verdict", "require"]


@dataclass
class Verdict:
    """What the referee found.

    Attributes
    ----------
    outcome : "checked", "refused" or "failed"
    kind : the check that failed, or the refusal's message with its numbers and names blotted out
    message : what was found, in a sentence
    left : checks that were not made, with the reason
    """

    outcome: str
    kind: str = ""
    message: str = ""
    left: dict[str, str] = field(default_factory=dict)


class Fault(Exception):
    """A check that failed: its kind, and a sentence."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def require(condition: Any, kind: str, message: str) -> None:
    """Raise a Fault unless the condition holds."""
    if not condition:
        raise Fault(kind, message)
