"""The append-only file: whatever moment its writer dies at, what was committed is there and nothing else is."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys

import numpy as np
import pytest

from foldwise import journal as module
from foldwise.journal import Journal, JournalError


class Killed(BaseException):
    """Stands for the end of the process."""


def write(path, count, shape=(1,)):
    with Journal.create(path, {"name": "test"}) as journal:
        for k in range(count):
            journal.append({"k": k}, {"a": np.full(shape, k + 0.1), "b": np.array([[np.pi]])})


def content(path):
    with Journal.open(path) as journal:
        return journal.header["name"], [
            (r.meta["k"], journal.arrays(r)["a"].tolist()) for r in journal.records
        ]


def test_what_is_appended_is_read_back_to_the_last_bit(tmp_path):
    path = tmp_path / "j"
    values = np.array([[0.1, -0.0, np.inf], [np.nan, 5e-324, 1e308]])
    with Journal.create(path, {"name": "test"}) as journal:
        journal.append(
            {"k": 'q"<\n'}, {"x": values, "none": np.zeros((0, 4)), "t": np.asfortranarray(values).T}
        )
    with Journal.open(path) as journal:
        (record,) = journal.records
        assert record.meta["k"] == 'q"<\n'
        arrays = journal.arrays(record)
    assert arrays["x"].tobytes() == values.tobytes()
    assert arrays["t"].tobytes() == np.ascontiguousarray(values.T).tobytes()
    assert arrays["none"].shape == (0, 4)


def test_appending_goes_on_after_opening(tmp_path):
    path = tmp_path / "j"
    write(path, 2)
    with Journal.open(path) as journal:
        journal.append({"k": 2}, {"a": np.zeros(1)})
    assert [k for k, _ in content(path)[1]] == [0, 1, 2]


def test_a_writer_that_dies_at_any_byte_loses_only_the_record_at_hand(tmp_path, monkeypatch):
    real = module._write_at
    path = tmp_path / "j"
    write(path, 2)
    before = path.read_bytes()
    with Journal.open(path) as journal:
        journal.append({"k": 2}, {"a": np.zeros(3)})
    n_bytes = path.stat().st_size - len(before) + module.SLOT.size
    seen = set()
    for allowed in range(n_bytes + 1):
        path.write_bytes(before)
        left = allowed

        def dying(file, data, offset):
            nonlocal left
            real(file, data[: max(left, 0)], offset)
            left -= len(data)
            if left < 0:
                raise Killed

        monkeypatch.setattr(module, "_write_at", dying)
        journal = Journal.open(path)
        with contextlib.suppress(Killed):
            journal.append({"k": 2}, {"a": np.zeros(3)})
        journal.close()
        monkeypatch.setattr(module, "_write_at", real)
        found = [k for k, _ in content(path)[1]]
        seen.add(len(found))
        assert found == ([0, 1, 2] if allowed == n_bytes else [0, 1])
        with Journal.open(path) as journal:  # and the next writer goes on from there
            journal.append({"k": 9}, {"a": np.ones(5)})
        assert [k for k, _ in content(path)[1]] == [*found, 9]
    assert seen == {2, 3}


def test_every_shorter_file_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "j"
    write(path, 3)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(JournalError, match=r"truncated|damaged|not a checkpoint"):
            Journal.open(path)
        assert path.read_bytes() == whole[:size]


def test_every_changed_byte_that_matters_is_noticed(tmp_path):
    path = tmp_path / "j"
    write(path, 3)
    whole = path.read_bytes()
    older = range(
        module.SLOTS[0], module.SLOTS[0] + module.SLOT.size
    )  # the slot of record 3, or of record 4: newer
    for at in range(module.DATA, len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        with pytest.raises(JournalError, match="damaged"):
            Journal.open(path)
    for at in older:  # one slot is lost with the power: the other one still tells where the records end
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        assert len(content(path)[1]) in (2, 3)


@pytest.mark.parametrize(
    "text", [b"", b"a,b\n1,2\n", b"\x00" * 400, module.MAGIC, module.MAGIC + b"\x00" * 400]
)
def test_foreign_files_are_refused_and_left_alone(tmp_path, text):
    path = tmp_path / "j"
    path.write_bytes(text)
    with pytest.raises(JournalError, match="left as it is"):
        Journal.open(path)
    with pytest.raises(JournalError, match="exists"):
        Journal.create(path, {})
    assert path.read_bytes() == text
    assert os.listdir(tmp_path) == ["j"]


def test_a_file_has_one_writer(tmp_path):
    path = tmp_path / "j"
    write(path, 1)
    with Journal.open(path), pytest.raises(JournalError, match="in use"):
        Journal.open(path)


def test_what_a_killed_process_left_goes_away(tmp_path):
    """A process that is killed while it creates a file leaves its part; nothing else beside the file is touched."""
    path, code = tmp_path / "j", "import os, sys; from foldwise import journal, outputs; "
    code += "outputs.os.fsync = lambda *_: os.kill(os.getpid(), 9); journal.Journal.create(sys.argv[1], {})"
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode != 0
    (part,) = os.listdir(tmp_path)
    assert part.startswith(".j.")
    others = {".k.0123abcd.part", ".j.part", ".j.0123abcd.part.txt", "j.0123abcd.part", ".jj.0123abcd.part"}
    for name in others:
        (tmp_path / name).write_text("kept")
    Journal.create(path, {}).close()
    assert set(os.listdir(tmp_path)) == others | {"j"}
    os.rename(tmp_path / ".k.0123abcd.part", tmp_path / part)
    Journal.open(path).close()
    assert set(os.listdir(tmp_path)) == (others - {".k.0123abcd.part"}) | {"j"}


def test_folders_that_cannot_be_written(tmp_path):
    with pytest.raises(JournalError, match="cannot write"):
        Journal.create(tmp_path / "no" / "j", {})
    with pytest.raises(JournalError, match="cannot open"):
        Journal.open(tmp_path / "j")
    with pytest.raises(JournalError, match="cannot open"):
        Journal.open(tmp_path)


def test_a_full_disk_is_told_with_the_file_and_what_was_complete_stays(tmp_path, monkeypatch):
    journal = Journal.create(tmp_path / "j", {})
    journal.append({"n": 0}, {"a": np.arange(3.0)})

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("foldwise.journal.os.fsync", full)
        with pytest.raises(JournalError, match=r"cannot write .*j: No space left on device; make room"):
            journal.append({"n": 1}, {"a": np.arange(3.0)})
    journal.append({"n": 2}, {"a": np.arange(3.0)})
    journal.close()
    with contextlib.closing(Journal.open(tmp_path / "j")) as again:
        assert [record.meta["n"] for record in again.records] == [0, 2]
