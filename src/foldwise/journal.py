"""A file to which records are only ever appended, and which survives the death of its writer at any moment.

Layout: a magic word; two slots, each with the number of records, the end of the last one and a checksum; then the
records, each a length, a checksum and a payload (a JSON text and arrays of float64). A record counts once a slot says
so: it is appended, brought to the disk, and only then one of the two slots, in turn, is overwritten in one small
write. What a killed writer leaves beyond the committed end is ignored and overwritten; a file that is shorter than its
slots say, or whose checksums fail, is damaged and is refused. Nothing in the file is ever executed or unpickled.
"""

from __future__ import annotations

import json
import os
import stat
import struct
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foldwise.outputs import clear_parts, complete

__all__ = ["Journal", "JournalError", "Stored"]

MAGIC = b"foldwise journal 2\n"
SLOTS = (64, 128)
DATA = 256
SLOT = struct.Struct("<QQI")
FRAME = struct.Struct("<QI")
CHUNK = 1 << 20
KINDS = ("<f8", "<i8", "|i1", "|b1")
"""How numbers are written; others become the first."""


class JournalError(ValueError):
    """A file that cannot be used; ``hint`` says what to do. The file is left as it was."""

    def __init__(self, message: str, hint: str):
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.args[0]}; {self.hint}"


@dataclass(frozen=True)
class Stored:
    """Where a record lies, and its JSON part."""

    offset: int
    size: int
    meta: dict[str, Any]


class Journal:
    """An open journal; :meth:`create` and :meth:`open` make one.

    Attributes
    ----------
    header : dict
        What :meth:`create` was given.
    records : list of Stored
        The records that the file held when it was opened.
    """

    def __init__(self, path: Path, file: Any, count: int, end: int, records: list[Stored]) -> None:
        self.path, self._file, self._count, self._end = path, file, count, end
        self.header, self.records = records[0].meta, records[1:]
        self._lock = threading.Lock()

    @classmethod
    def create(cls, path: str | Path, header: Mapping[str, Any]) -> Journal:
        """A new file with this header; it appears complete or not at all. An existing file is refused."""
        path = Path(os.path.realpath(path))  # the target of a link that points to nothing yet
        frame = _frame(dict(header), {})
        head = bytearray(DATA)
        head[: len(MAGIC)] = MAGIC
        head[SLOTS[0] : SLOTS[0] + SLOT.size] = _slot(1, DATA + len(frame))
        try:
            with complete(path, "wb", replace=False) as file:
                file.write(bytes(head) + frame)
        except FileExistsError:
            raise JournalError(
                f"{path} exists", "resume from it, delete it, or choose another name"
            ) from None
        except OSError as error:
            raise JournalError(
                f"cannot write {path}: {error.strerror}", "choose a file in a folder that can be written"
            ) from error
        return cls.open(path)

    @classmethod
    def open(cls, path: str | Path) -> Journal:
        """Open a file to read its records and to append; every committed byte is checked."""
        path = Path(path)
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):  # to open a pipe would be to wait for its writer
                raise JournalError(f"cannot open {path}: it is not a plain file", "choose another file")
            file = open(path, "r+b", buffering=0)  # noqa: SIM115 - it stays open
        except OSError as error:
            raise JournalError(f"cannot open {path}: {error.strerror}", "check the name") from error
        try:
            _lock(file, path)
            count, end = _committed(file, path)
            records = _scan(file, path, count, end)
            clear_parts(path)  # of a process that was killed while it created the file
            return cls(path, file, count, end, records)
        except BaseException:
            file.close()
            raise

    def append(self, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Add a record; when this returns it is on the disk and counts."""
        frame = _frame(dict(meta), arrays)
        with self._lock:
            try:
                _write_at(self._file, frame, self._end)
                os.fsync(self._file.fileno())
                count, end = self._count + 1, self._end + len(frame)
                _write_at(self._file, _slot(count, end), SLOTS[(count - 1) % 2])
            except OSError as error:
                raise JournalError(
                    f"cannot write {self.path}: {error.strerror}",
                    "make room there and resume from it: what was complete before is kept",
                ) from error
            self._count, self._end = count, end

    def arrays(self, record: Stored) -> dict[str, np.ndarray]:
        """The arrays of a record."""
        with self._lock:
            self._file.seek(record.offset)
            blob = _read(self._file, record.size)
        out, at = {}, 0
        for name, shape, kind in record.meta["arrays"]:
            count, native = int(np.prod(shape, dtype=np.int64)), np.dtype(kind).newbyteorder("=")
            out[name] = np.frombuffer(blob, kind, count, at).astype(native).reshape(shape)
            at += count * native.itemsize
        return out

    @property
    def empty(self) -> bool:
        """Whether there is nothing but the header."""
        return self._count == 1

    def close(self) -> None:
        """Bring everything to the disk and close the file."""
        if not self._file.closed:
            os.fsync(self._file.fileno())
            self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _slot(count: int, end: int) -> bytes:
    numbers = struct.pack("<QQ", count, end)
    return numbers + struct.pack("<I", zlib.crc32(numbers))


def _frame(meta: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """A record as bytes: length, checksum, length of the JSON text, JSON text, arrays."""
    plain = {name: np.ascontiguousarray(array, dtype=_kind(array)) for name, array in arrays.items()}
    meta["arrays"] = [[name, list(array.shape), _kind(array)] for name, array in plain.items()]
    text = json.dumps(meta).encode()
    payload = struct.pack("<I", len(text)) + text + b"".join(array.tobytes() for array in plain.values())
    return FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def _kind(array: np.ndarray) -> str:
    """How the numbers of an array are written."""
    kind = np.asarray(array).dtype.newbyteorder("<").str
    return kind if kind in KINDS else KINDS[0]


def _write_at(file: Any, data: bytes, offset: int) -> None:
    file.seek(offset)
    view = memoryview(data)
    while len(view):
        view = view[file.write(view) :]


def _read(file: Any, size: int) -> bytes:
    """Exactly ``size`` bytes, or fewer at the end of the file."""
    parts = []
    while size > 0 and (part := file.read(min(size, 64 * CHUNK))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _committed(file: Any, path: Path) -> tuple[int, int]:
    """Number of records and end of the last one, from the newer of the two slots that are whole."""
    head = _read(file, DATA)
    if head[: len(MAGIC)] != MAGIC:
        raise JournalError(
            f"{path} is not a checkpoint of foldwise; it was left as it is", "choose another file"
        )
    best = (0, 0)
    for at in SLOTS:
        raw = head[at : at + SLOT.size]
        if len(raw) == SLOT.size:
            count, end, check = SLOT.unpack(raw)
            if check == zlib.crc32(raw[:16]):
                best = max(best, (count, end))
    if best[0] == 0:
        raise _damaged(path, "its head is")
    return best


def _scan(file: Any, path: Path, count: int, end: int) -> list[Stored]:
    """Check every committed record; keep their places and their JSON parts."""
    if os.fstat(file.fileno()).st_size < end:
        raise _damaged(path, "it is shorter than it was:", "truncated")
    records: list[Stored] = []
    offset = DATA
    while offset < end:
        length, check = FRAME.unpack(_read(file, FRAME.size)) if offset + FRAME.size <= end else (0, 0)
        start = offset + FRAME.size
        if length < 4 or start + length > end:
            raise _damaged(path, f"record {len(records)} is")
        size = struct.unpack("<I", first := _read(file, 4))[0]
        if size > length - 4:
            raise _damaged(path, f"record {len(records)} is")
        text = _read(file, size)
        found, left = zlib.crc32(text, zlib.crc32(first)), length - 4 - size
        while left > 0:
            part = file.read(min(left, CHUNK))
            if not part:
                raise _damaged(path, f"record {len(records)} is")
            found, left = zlib.crc32(part, found), left - len(part)
        if found != check:
            raise _damaged(path, f"record {len(records)} is")
        try:
            meta = json.loads(text)
            parts = [
                (int(np.prod(shape, dtype=np.int64)), KINDS.index(kind)) for _, shape, kind in meta["arrays"]
            ]
            sizes = [count * np.dtype(KINDS[i]).itemsize for count, i in parts]
        except (ValueError, KeyError, TypeError):
            raise _damaged(path, f"record {len(records)} is") from None
        if sum(sizes) != length - 4 - size or min(sizes, default=0) < 0:
            raise _damaged(path, f"record {len(records)} is")
        records.append(Stored(start + 4 + size, length - 4 - size, meta))
        offset = start + length
    if len(records) != count:
        raise _damaged(path, f"it holds {len(records)} records instead of {count}:")
    return records


def _damaged(path: Path, what: str, how: str = "damaged") -> JournalError:
    return JournalError(
        f"the checkpoint {path} cannot be used, {what} {how}; it was left as it is",
        "use a copy from before, or start anew with another file",
    )


def _lock(file: Any, path: Path) -> None:
    """One writer at a time, where the system has locks for that."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise JournalError(f"{path} is in use by another process", "wait for it to end") from None
