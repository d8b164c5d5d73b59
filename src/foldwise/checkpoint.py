"""Searches that can be interrupted at any moment and resumed: same evaluations, same answer.

A checkpoint is a :class:`~foldwise.journal.Journal` of everything that a search computed: objectives, derivatives, and
the solutions of the training problems from which others start. A resumed search runs its method from the beginning;
what the file holds is looked up, by ``theta`` to the last bit, the rest is computed and appended.

For the answers to agree bit for bit, an evaluation may depend on nothing but ``theta`` and the evaluation that it
starts from. :class:`Journaled` sees to that: before each evaluation it forgets what was kept between them
(:meth:`~foldwise.bilevel.Bilevel.reset`), and an evaluation that is not the last one is computed again before it is
differentiated. A search with a checkpoint therefore agrees with one without up to rounding, and with itself exactly.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import scipy.sparse as sp

from foldwise.bilevel import Bilevel, Evaluation
from foldwise.frames import is_frame
from foldwise.journal import Journal, JournalError, Stored
from foldwise.problems.base import Array, State
from foldwise.version import __version__

__all__ = ["Checkpoint", "Journaled", "fingerprint"]

FORMAT = "foldwise-checkpoint-2"


class Checkpoint:
    """The checkpoint of one search.

    Parameters
    ----------
    path : str or Path
    resume : bool
        Continue from the file if there is one. Without it an existing file is refused.
    parts : mapping from str to object
        What the search depends on, by the name that an error uses: data, folds, settings. Hashes are stored.
    seed : int
        Seed of the search; a resumed one gets that of the file.

    Attributes
    ----------
    seed : int
    n_replayed : int
        Evaluations that were looked up, not computed, so far.
    """

    def __init__(self, path: str | Path, resume: bool, parts: Mapping[str, Any], seed: int) -> None:
        path = Path(path)
        hashes = {name: fingerprint(value) for name, value in parts.items()}
        if not path.parent.is_dir():
            raise JournalError(f"cannot write {path}: its folder does not exist", "create the folder first")
        if path.exists() and not resume:
            raise JournalError(
                f"the checkpoint {path} exists",
                "resume from it (resume=True, --resume), or choose another file",
            )
        self._new = not path.exists()
        if not self._new:
            self._journal = Journal.open(path)
            try:
                self._check(hashes)
            except BaseException:
                self._journal.close()
                raise
        else:
            header = {"format": FORMAT, "version": __version__, "seed": int(seed), "parts": hashes}
            header["packages"] = {"numpy": np.__version__, "scipy": scipy.__version__}
            self._journal = Journal.create(path, header)
        self.seed = int(self._journal.header["seed"])
        self.n_replayed = 0
        self._lock = threading.Lock()
        self._streams: dict[str, list[Stored]] = {}
        for record in self._journal.records:
            self._streams.setdefault(record.meta["stream"], []).append(record)

    def _check(self, hashes: dict[str, str]) -> None:
        header, path = self._journal.header, self._journal.path
        if header.get("format") != FORMAT:
            raise JournalError(f"{path} is not a checkpoint of a search", "choose another file")
        if header["version"] != __version__:
            raise JournalError(
                f"the checkpoint {path} was written by foldwise {header['version']}; this is {__version__}",
                "resume with that version, or start anew with another file",
            )
        stored = header["parts"]
        differ = [name for name in {**stored, **hashes} if stored.get(name) != hashes.get(name)]
        if differ:
            raise JournalError(
                f"the checkpoint {path} belongs to another search: {', '.join(differ)} differ",
                "resume with the data and settings it was begun with, or start anew with another file",
            )

    def wrap(self, bilevel: Bilevel, stream: str) -> Journaled:
        """The program with its evaluations kept in the file under the name ``stream``."""
        return Journaled(bilevel, self, stream)

    def count(self) -> None:
        """One more evaluation was looked up."""
        with self._lock:
            self.n_replayed += 1

    def close(self) -> None:
        """Close the file; a new one without an evaluation, of a search that could not begin, is taken away."""
        if self._new and self._journal.empty:
            self._journal.path.unlink(missing_ok=True)
        self._journal.close()


class Journaled(Bilevel):
    """A bilevel program whose evaluations and derivatives are looked up in a checkpoint, or computed and stored."""

    def __init__(self, bilevel: Bilevel, checkpoint: Checkpoint, stream: str) -> None:
        parts = bilevel.problems, bilevel.criterion, bilevel.space, bilevel.solver, bilevel.prior
        super().__init__(*parts, bilevel.starts)
        self._checkpoint, self._stream = checkpoint, stream
        self._stored = list(reversed(checkpoint._streams.get(stream, [])))
        self._origins: weakref.WeakKeyDictionary[Evaluation, Evaluation | None] = weakref.WeakKeyDictionary()

    def reset(self) -> None:
        """Forget everything but the data."""
        super().reset()
        self._current: Evaluation | None = None

    def evaluate(self, theta: Array, warm: Evaluation | None = None) -> Evaluation:
        """As :meth:`Bilevel.evaluate`; a function of ``theta`` and ``warm`` alone."""
        theta = self.space.clip(np.asarray(theta, float))
        origin = None if warm is None else _outline(warm)
        found = self._look_up("evaluate", theta)
        if found is None:
            self.reset()
            evaluation = super().evaluate(theta, origin)
            self._current = evaluation
            self._store_evaluation(evaluation)
        else:
            meta, arrays = found
            states = [self._state(i, arrays) for i in range(len(self.problems))]
            objective = float(arrays["objective"][0])
            evaluation = Evaluation(theta, objective, arrays["tasks"], states, meta["converged"])
            self.n_evaluations += 1
            self.n_inner_steps += sum(meta["steps"])
            self._checkpoint.count()
        self._origins[evaluation] = origin
        return evaluation

    def differentiate(self, evaluation: Evaluation, order: int = 1, exact: bool = True) -> Evaluation:
        """As :meth:`Bilevel.differentiate`."""
        if evaluation.gradient is not None and (order < 2 or evaluation.hessian is not None):
            return evaluation
        found = self._look_up("differentiate", evaluation.theta, order=order, exact=exact)
        if found is None:
            self._compute(evaluation, order, exact)
            self._store_derivatives(evaluation, order, exact)
        else:
            arrays = found[1]
            evaluation.gradient = arrays["gradient"]
            if order >= 2:
                evaluation.hessian = arrays["hessian"]
                evaluation.sensitivities = [arrays[f"J{i}"] for i in range(len(self.problems))]
        return evaluation

    def noted(
        self, evaluation: Evaluation, compute: Callable[[], dict[str, list[float]]]
    ) -> dict[str, list[float]]:
        """As :meth:`Bilevel.noted`; looked up, or computed and stored."""
        found = self._look_up("noted", evaluation.theta)
        if found is not None:
            arrays = found[1]
            return {name: arrays[f"note {name}"].tolist() for name in found[0]["names"]}
        notes = compute()
        meta = {"kind": "noted", "stream": self._stream, "names": list(notes)}
        arrays = {f"note {name}": np.asarray(values, float) for name, values in notes.items()}
        self._checkpoint._journal.append(meta, {"theta": evaluation.theta, **arrays})
        return notes

    def certify(self, evaluation: Evaluation) -> dict[str, Any]:
        """As :meth:`Bilevel.certify`; nothing is stored, since a search that was cut short goes on elsewhere."""
        self.revive(evaluation)
        if self.criterion.differentiable:
            self._compute(evaluation)
        return super().certify(evaluation)

    def solutions(self, evaluation: Evaluation) -> list[Any]:
        """As :meth:`Bilevel.solutions`; those of an evaluation that was looked up are computed."""
        if evaluation.solutions is None:
            self.revive(evaluation)
        return super().solutions(evaluation)

    def revive(self, evaluation: Evaluation) -> None:
        """Bring what is kept, and the solutions of the evaluation, to where they were just after it."""
        if self._current is not evaluation:
            self.reset()
            fresh = self._solve(evaluation.theta, self._origins[evaluation])
            for old, new in zip(evaluation.states, fresh.states, strict=True):
                there = new.arrays()
                if any(not np.array_equal(array, there[name]) for name, array in old.arrays().items()):
                    raise self._strange("computing an evaluation again gives other digits")
            evaluation.solutions = fresh.solutions
            self._current = evaluation

    def _compute(self, evaluation: Evaluation, order: int = 1, exact: bool = True) -> None:
        """Derivatives that are not looked up; a gradient that was lacks its adjoints and is computed with them."""
        self.revive(evaluation)
        if evaluation.gradient is not None and not evaluation.adjoints:
            evaluation.gradient = None
        super().differentiate(evaluation, order, exact)

    def _look_up(
        self, kind: str, theta: Array, **settings: Any
    ) -> tuple[dict[str, Any], dict[str, Array]] | None:
        """The next record of the stream, which must be of this operation; None when there are no more."""
        if not self._stored:
            return None
        record = self._stored.pop()
        arrays = self._checkpoint._journal.arrays(record)
        wanted = {"kind": kind, **settings}
        if any(record.meta.get(name) != value for name, value in wanted.items()):
            raise self._strange("it continues in another way")
        if arrays["theta"].tobytes() != np.ascontiguousarray(theta, "<f8").tobytes():
            raise self._strange("an evaluation was at other values")
        return record.meta, arrays

    def _state(self, i: int, arrays: Mapping[str, Array]) -> State:
        """The state of a problem from the file."""
        own = f"state{i} "
        parts = {name.removeprefix(own): array for name, array in arrays.items() if name.startswith(own)}
        return self.problems[i].state_type(**parts)

    def _strange(self, what: str) -> JournalError:
        journal = self._checkpoint._journal
        known = ", ".join(f"{name} {version}" for name, version in journal.header["packages"].items())
        return JournalError(
            f"the search does not follow the checkpoint {journal.path}: {what} (it was written with {known})",
            "resume on the same machine with the same packages and threads, or start anew with another file",
        )

    def _store_evaluation(self, evaluation: Evaluation) -> None:
        meta = {
            "kind": "evaluate",
            "stream": self._stream,
            "converged": bool(evaluation.converged),
            "steps": [int(solution.steps) for solution in self.solutions(evaluation)],
        }
        arrays = {"theta": evaluation.theta, "objective": np.array([evaluation.objective])}
        for i, state in enumerate(evaluation.states):
            arrays |= {f"state{i} {name}": array for name, array in state.arrays().items()}
        self._checkpoint._journal.append(meta, {**arrays, "tasks": evaluation.task_objectives})

    def _store_derivatives(self, evaluation: Evaluation, order: int, exact: bool) -> None:
        assert evaluation.gradient is not None
        arrays = {"theta": evaluation.theta, "gradient": evaluation.gradient}
        if order >= 2:
            assert evaluation.hessian is not None
            arrays["hessian"] = evaluation.hessian
            arrays |= {f"J{i}": J for i, J in enumerate(evaluation.sensitivities)}
        meta = {"kind": "differentiate", "stream": self._stream, "order": order, "exact": exact}
        self._checkpoint._journal.append(meta, arrays)


def _outline(evaluation: Evaluation) -> Evaluation:
    """What another evaluation starts from: ``theta``, states and, if known by now, sensitivities."""
    outline = Evaluation(evaluation.theta, evaluation.objective, np.zeros(0), evaluation.states, True)
    outline.sensitivities = list(evaluation.sensitivities)
    return outline


def fingerprint(value: Any) -> str:
    """A hash of data or settings that is the same in another process.

    >>> fingerprint({"C": 1.0, "x": np.arange(3)}) == fingerprint({"x": np.arange(3), "C": 1.0})
    True
    >>> fingerprint([1, 2]) == fingerprint([1, 3])
    False
    """
    digest = hashlib.sha256()
    _feed(digest, value)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    """Add a value to a hash, with its type and shape."""
    digest.update(f"<{type(value).__name__}>".encode())
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.str}{value.shape}".encode())
        if value.dtype.kind == "O":
            _feed(digest, value.ravel().tolist())
        else:
            digest.update(np.ascontiguousarray(value).view(np.uint8).data if value.size else b"")
    elif sp.issparse(value):
        rows = sp.csr_array(value)
        for part in (np.array(rows.shape), rows.indptr, rows.indices, rows.data):
            _feed(digest, np.asarray(part))
    elif is_frame(value):
        for i, name in enumerate(value.columns):
            _feed(digest, [str(name), str(value.dtypes.iloc[i]), value.iloc[:, i].to_numpy()])
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            _feed(digest, [str(key), value[key]])
    elif isinstance(value, list | tuple):
        for item in value:
            _feed(digest, item)
    elif hasattr(value, "get_params") and not isinstance(value, type):
        _feed(digest, [_name(type(value)), value.get_params(deep=False)])
    elif is_dataclass(value) and not isinstance(value, type):
        # Field by field, not asdict: that forgets the types of dataclasses inside.
        _feed(digest, [_name(type(value)), {f.name: getattr(value, f.name) for f in fields(value)}])
    elif callable(value) and hasattr(value, "__qualname__"):
        digest.update(_name(value).encode())
        if (code := getattr(value, "__code__", None)) is not None:
            _feed_code(digest, code)
            _feed(digest, [held for held in _held(value) if not callable(held)])
        if inspect.ismethod(value):
            _feed(digest, value.__self__)
    elif state := _state(value):
        _feed(digest, [_name(type(value)), state])
    else:  # an object without a text of its own prints its address, which changes
        digest.update(re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value)).encode())
    digest.update(b"</>")


def _feed_code(digest: Any, code: Any) -> None:
    """Add what a function does, wherever it is written: lambdas have one name, and a function may be changed."""
    digest.update(code.co_code)
    digest.update(repr(code.co_names).encode())
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            _feed_code(digest, constant)
        elif isinstance(constant, frozenset):
            digest.update(repr(sorted(map(repr, constant))).encode())
        else:
            digest.update(repr(constant).encode())


def _held(function: Any) -> list[Any]:
    """The defaults and outer variables of a function."""
    held = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
    for cell in function.__closure__ or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # not yet set
            continue
    return held


def _state(value: Any) -> dict[str, Any]:
    """The attributes of an object of a class that a user may have written; empty for built-in types."""
    state = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = getattr(kind, "__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name) and not name.startswith("__"):
                state[name] = getattr(value, name)
    return state


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"
