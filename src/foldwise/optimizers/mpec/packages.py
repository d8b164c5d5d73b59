"""Optional packages that the programs with complementarity need."""

from __future__ import annotations

import importlib
import os
from typing import Any

__all__ = ["load_package"]

UNBUFFERED = "GFORTRAN_UNBUFFERED_PRECONNECTED"
"""Read once, when Uno is loaded: what its QP solver writes while it runs is then not kept for later."""


def load_package(name: str) -> Any:
    """Import an optional package, or say what to install."""
    before = os.environ.get(UNBUFFERED)
    os.environ[UNBUFFERED] = "1"
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"method 'mpec' or 'slams' needs the package {name!r}: pip install 'foldwise[mpec]'  "
            f"(or: pip install {name})"
        ) from error
    finally:
        if before is None:
            del os.environ[UNBUFFERED]
        else:
            os.environ[UNBUFFERED] = before
