"""Dependencies of the package point one way, and importing it stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "src" / "foldwise"

# From the ground up: a module may import from its own layer or a lower one. A name stands for a module or a folder.
LAYERS = [
    {"arguments", "deadline", "fit_time", "frames", "linalg", "nesting", "threads", "wording"},
    {
        "version",
        "basis",
        "losses",
        "penalties",
        "kernels",
        "design",
        "space",
        "splits",
        "result",
        "callbacks",
        "outputs",
        "journal",
        "prior",
        "calibration",
    },
    {"criteria"},
    {"problems"},
    {"solvers", "hypergradient"},
    {"bilevel"},
    {"checkpoint"},
    {"optimizers"},
    {"models"},
    {"estimators"},
    {"bounds", "final_fit", "uncertainty"},
    {"search"},
    {"tables", "datasets", "saving", "plotting", "report", "cli", "testing"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
SOLVERS = {"clarabel", "highspy", "piqp", "osqp", "quadprog", "cvxpy", "unopy", "ipyopt", "cyipopt", "casadi"}
SHOW = {"matplotlib", "plotly", "rich", "typer"}
LAZY = {"numba", "dask", "distributed", "optuna", "pandas", "skops"} | SOLVERS | SHOW


def module_name(path: Path, root: Path) -> str:
    """Dotted name inside the package; "" for the package's own __init__."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph(root: Path) -> dict[str, set[str]]:
    """Which modules of the package each module imports, inside functions too; type-checking blocks are left out."""
    files = {module_name(path, root): path for path in root.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        is_package = path.name == "__init__.py"
        graph[name] = {
            found
            for node in runtime_nodes(tree)
            for found in imported(node, name, is_package, set(files), root.name)
        }
        graph[name].discard(name)
    return graph


def runtime_nodes(tree: ast.AST):
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            stack.extend(node.orelse)
            continue
        yield node
        stack.extend(ast.iter_child_nodes(node))


def imported(node: ast.AST, importer: str, is_package: bool, known: set[str], package: str) -> set[str]:
    """Modules of the package that one import statement reaches; "" is the package itself."""
    if isinstance(node, ast.Import):
        names = [alias.name.split(".") for alias in node.names]
        return {".".join(parts[1:]) for parts in names if parts[0] == package}
    if not isinstance(node, ast.ImportFrom):
        return set()
    if node.level == 0:
        parts = (node.module or "").split(".")
        if parts[0] != package:
            return set()
        base = parts[1:]
    else:
        here = importer.split(".") if importer else []
        up = node.level - 1 if is_package else node.level
        base = here[: len(here) - up] + ((node.module or "").split(".") if node.module else [])
    found = set()
    for alias in node.names:
        inner = ".".join([*base, alias.name])
        found.add(inner if inner in known else ".".join(base))
    return found


def violations(graph: dict[str, set[str]]) -> list[str]:
    """Every import that points upward, in words."""
    top = len(LAYERS) - 1
    wrong = []
    for name, targets in sorted(graph.items()):
        if not name:  # the package's __init__ gathers the public names
            continue
        layer = LEVEL.get(name.split(".")[0])
        if layer is None:
            wrong.append(f"{name} has no layer; give it one in LAYERS")
            continue
        for target in sorted(targets):
            if LEVEL.get(target.split(".")[0], top) > layer or (not target and layer < top):
                wrong.append(f"{name} imports {target or 'the package itself'}, which lies above it")
    return wrong


def cycle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter({name: targets - {""} for name, targets in graph.items() if name}).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_dependencies_point_one_way():
    assert violations(import_graph(ROOT)) == []


def test_no_cycles():
    assert cycle(import_graph(ROOT)) == []


@pytest.fixture
def package(tmp_path):
    """A small package of the same name, to see that the checks can fail."""

    def write(**files: str) -> Path:
        root = tmp_path / "foldwise"
        for name, text in {"__init__": "", **files}.items():
            path = root.joinpath(*name.split("__in__")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return root

    return write


@pytest.mark.parametrize(
    "statement",
    [
        "from foldwise.search import BilevelSearchCV",
        "from foldwise import search",
        "import foldwise.search",
        "from .search import BilevelSearchCV",
        "from . import search",
        "def late():\n    from foldwise.search import BilevelSearchCV",
        "from foldwise import BilevelSearchCV",
    ],
)
def test_an_upward_import_is_found(package, statement):
    root = package(losses=statement, search="")
    assert len(violations(import_graph(root))) == 1


def test_relative_imports_inside_a_folder_are_resolved(package):
    root = package(
        problems__in__linear="from ..losses import Loss\nfrom ..search import S", losses="", search=""
    )
    assert import_graph(root)["problems.linear"] == {"losses", "search"}
    assert len(violations(import_graph(root))) == 1


def test_type_checking_imports_and_downward_imports_are_fine(package):
    root = package(
        losses="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from foldwise.search import S",
        search="from foldwise.losses import Loss",
        cli="from foldwise import BilevelSearchCV",
    )
    assert violations(import_graph(root)) == []


def test_a_cycle_in_a_layer_is_found(package):
    root = package(losses="import foldwise.space", space="import foldwise.losses")
    graph = import_graph(root)
    assert violations(graph) == []
    assert set(cycle(graph)) == {"losses", "space"}


def test_an_unknown_module_is_found(package):
    assert "no layer" in violations(import_graph(package(utils="")))[0]


WATCH = """
import importlib, sys

class Watch:
    # Hides the packages, so that every attempt to import one comes by here, and notes who tried.
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in hidden:
            frame = sys._getframe(1)
            while "importlib" in frame.f_code.co_filename:
                frame = frame.f_back
            if frame.f_globals["__name__"].split(".")[0] == "foldwise":
                print(frame.f_globals["__name__"], "imports", name)
            raise ModuleNotFoundError(name)

hidden = set(sys.argv[2:])
sys.meta_path.insert(0, Watch())
name, _, attributes = sys.argv[1].partition(":")
module = importlib.import_module(name)
for attribute in getattr(module, attributes) if attributes == "__all__" else filter(None, [attributes]):
    getattr(module, attribute)
"""


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("foldwise", set()),
        ("foldwise:BilevelSearchCV", set()),
        ("foldwise:__all__", set()),
        ("foldwise.cli", {"typer"}),
    ],
)
def test_import_is_light(module, allowed):
    """Packages that are optional or slow are imported where they are used. scikit-learn may import what it likes."""
    command = [sys.executable, "-c", WATCH, module, *(LAZY - allowed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")
