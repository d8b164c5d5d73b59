"""Print the oldest versions that pyproject.toml allows of what users install, as pinned requirements."""

import re
import tomllib
from pathlib import Path

USER_EXTRAS = ("mpec", "parquet", "plot", "save")

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
requirements = [*project["dependencies"], *(line for name in USER_EXTRAS for line in extras[name])]
for line in sorted(set(requirements)):
    name, lowest = re.fullmatch(r"([\w.-]+)>=([\w.]+).*", line).groups()
    print(f"{name}=={lowest}")
