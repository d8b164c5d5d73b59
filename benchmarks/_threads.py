"""One thread for everybody: imported before NumPy, so that times can be compared."""

import os
import sys

__all__ = ["NAMES"]

NAMES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "BLIS_NUM_THREADS",
)
if "numpy" in sys.modules:
    raise SystemExit(
        "NumPy is already imported, so its threads cannot be limited; run the script as a script"
    )
for _name in NAMES:
    if os.environ.get(_name, "1") != "1":
        raise SystemExit(f"{_name} is {os.environ[_name]}; times are compared on one thread each: unset it")
    os.environ[_name] = "1"
