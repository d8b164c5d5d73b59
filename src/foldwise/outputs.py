"""Files that are written: checked before the work, complete or not at all, never in the place of an input.

Everything that writes a file goes through :func:`writing`. A plain file is written beside its place and moved there in
one step, so that whoever reads it sees the old one or the new one; a symbolic link stays and its target is written;
what is not a plain file (a device, a pipe, ``/dev/stdout``) is written to and never taken away.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

__all__ = ["OutputError", "check_outputs", "clear_parts", "complete", "is_same", "writing"]


class OutputError(ValueError):
    """A file that cannot be written; ``hint`` says what to do. Nothing has been changed."""

    def __init__(self, message: str, hint: str):
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.args[0]} {self.hint[:1].upper()}{self.hint[1:]}"


@contextlib.contextmanager
def writing(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file for writing; it appears when the block ends well, and otherwise all is as it was.

    Parameters
    ----------
    path : str or Path
    mode : {"w", "wb"}
        Text is UTF-8 with the line ends that it has.

    Raises
    ------
    OutputError
        When the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with writing(Path(folder) / "a.txt") as file:
    ...         _ = file.write("one")
    ...     os.listdir(folder), (Path(folder) / "a.txt").read_text()
    (['a.txt'], 'one')
    """
    try:
        with _placed(Path(path), mode) as file:
            yield file
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise OutputError(
            f"cannot write {path}: {error.strerror}.", "make room there, or choose another place."
        ) from error


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""There is no room for what is written."""


@contextlib.contextmanager
def _placed(path: Path, mode: str) -> Iterator[IO[Any]]:
    """What :func:`writing` does, with the bare errors of a disk that is full."""
    kind = check_writable(path)
    if kind == "stream":
        with _open(_descriptor(path), mode) as file:
            yield file
        return
    real = Path(os.path.realpath(path))
    if kind == "in place":
        with _open(real, mode) as file:
            yield file
        return
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(complete(real, mode))
        except OSError as error:
            raise _refused(path, error) from error
        if real.exists():
            os.chmod(file.name, stat.S_IMODE(os.stat(real).st_mode))
        yield file


@contextlib.contextmanager
def complete(path: Path, mode: str, *, replace: bool = True) -> Iterator[IO[Any]]:
    """A file that is written beside its place, brought to the disk, and then given its name in one step.

    Without ``replace`` a FileExistsError is raised when something has that name by then.
    """
    part = _part_of(path)
    try:
        with _open(part, mode.replace("w", "x")) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(part, path)
        else:
            _publish(part, path)
        _sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _publish(part: Path, path: Path) -> None:
    """Give a complete file its name, unless something has that name."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if path.exists():
            raise FileExistsError from None
        os.replace(part, path)


HEAD = 120
"""Bytes of a file's name that the name of its part begins with."""


def _part_of(path: Path) -> Path:
    """A name of its own beside a file, for what is not complete yet."""
    head = path.name.encode("utf-8", "surrogateescape")[:HEAD].decode("utf-8", "ignore")
    return path.with_name(f".{head}.{secrets.token_hex(4)}.part")


def clear_parts(path: Path) -> None:
    """Take away what processes that were killed in the middle of writing a file have left beside it.

    For who holds the file alone: another that writes it would lose its part.
    """
    name = path.name.encode("utf-8", "surrogateescape")
    if len(name) > HEAD:  # other files may begin alike
        return
    own = re.compile(re.escape(f".{path.name}.") + "[0-9a-f]{8}\\.part")
    with contextlib.suppress(OSError):
        for entry in os.listdir(path.parent):
            if own.fullmatch(entry):
                with contextlib.suppress(OSError):
                    os.unlink(path.parent / entry)


def check_writable(path: Path) -> str:
    """How a file would be written: "stream", "in place" or "whole"; an OutputError when it cannot be."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        found = None
    except OSError as error:
        raise _refused(path, error) from None
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise OutputError(f"cannot write {path}: it is a folder.", "give the name of a file.")
    if found is not None and stat.S_ISSOCK(found.st_mode):
        raise OutputError(f"cannot write {path}: it is a socket.", "give the name of a file.")
    if found is not None and not os.access(path, os.W_OK):
        raise OutputError(f"cannot write {path}: it is read-only.", "choose another file.")
    if found is not None and (not stat.S_ISREG(found.st_mode) or _descriptor(path) != path):
        return "stream"
    real = Path(os.path.realpath(path))
    folder = real.parent
    if not folder.is_dir():
        if folder.exists():
            raise OutputError(f"cannot write {path}: {folder} is not a folder.", "choose another place.")
        raise OutputError(
            f"cannot write {path}: its folder does not exist.", f"make it first: mkdir -p {folder}"
        )
    probe = _part_of(real)
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.unlink(probe)
    except OSError as error:
        if found is not None and error.errno in (errno.EACCES, errno.EPERM):
            return "in place"  # a file that may be written in a folder that may not
        raise _refused(path, error) from None
    return "whole"


def check_outputs(
    outputs: Mapping[str, str | Path | None],
    inputs: Mapping[str, str | Path | None] | None = None,
) -> None:
    """Refuse, before any work, outputs that cannot be written, that are an input, or that are the same file.

    Parameters
    ----------
    outputs, inputs : mapping from what a file is called in a message to its path; None entries are passed over
        "-" among the outputs is standard output.

    Raises
    ------
    OutputError
    """
    wanted = {name: Path(path) for name, path in outputs.items() if path is not None}
    given = {
        name: Path(path) for name, path in (inputs or {}).items() if path is not None and str(path) != "-"
    }
    seen: dict[str, Path] = {}
    for name, path in wanted.items():
        for other, source in given.items():
            if is_same(path, source):
                raise OutputError(
                    f"{name} would replace {other}: {path} and {source} are one file."
                    if str(path) != str(source)
                    else f"{name} would replace {other}: both are {path}.",
                    "choose another file to write.",
                )
        for other, target in seen.items():
            if is_same(path, target):
                raise OutputError(
                    f"{other} and {name} are one file, {path}, and one would replace the other.",
                    "give each a file of its own.",
                )
        seen[name] = path
        if str(path) != "-":
            check_writable(path)


def is_same(one: Path, other: Path) -> bool:
    """Whether two paths mean one plain file, or one that is to be: through links, and however they are spelled.

    Devices and pipes are never the same: nothing in them is replaced. Two files that do not exist yet are the same
    also when they differ in the case of letters alone, since many file systems keep them as one.
    """
    if str(one) == str(other) == "-":
        return True
    stats = [_stat(one), _stat(other)]
    if stats[0] is not None and stats[1] is not None:
        return stat.S_ISREG(stats[0].st_mode) and os.path.samestat(stats[0], stats[1])
    if "-" in (str(one), str(other)) or stats[0] is not None or stats[1] is not None:
        return False
    return _key(one) == _key(other)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return os.fstat(1) if str(path) == "-" else os.stat(path)
    except (OSError, ValueError):
        return None


def _key(path: Path) -> str:
    return unicodedata.normalize("NFC", os.path.realpath(path)).casefold()


def _descriptor(path: Path) -> Any:
    """The number of our own open file that a path such as ``/dev/stdout`` stands for, else the path.

    Opened by its name, a file to which standard output goes would be emptied first.
    """
    here = str(path)
    for _ in range(40):
        parent = os.path.realpath(os.path.dirname(here) or ".")
        if (
            re.fullmatch(rf"/proc/{os.getpid()}(/task/\d+)?/fd|/dev/fd", parent)
            and here.rpartition("/")[2].isdigit()
        ):
            return int(here.rpartition("/")[2])
        if not os.path.islink(here):
            return path
        here = os.path.join(parent, os.readlink(here))
    return path


def _open(place: Any, mode: str) -> IO[Any]:
    """Open a path, or a copy of a descriptor."""
    where = os.dup(place) if isinstance(place, int) else place
    if "b" in mode:
        return open(where, mode)
    return open(where, mode, encoding="utf-8", newline="")


def _refused(path: Path, error: OSError) -> OutputError:
    return OutputError(f"cannot write {path}: {error.strerror or error}.", "choose another file or folder.")


def _sync_folder(folder: Path) -> None:
    """Bring a new name to the disk, where folders can be opened."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
