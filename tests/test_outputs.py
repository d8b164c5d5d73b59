"""Files that are written: whole or not at all, through links, never in the place of something else."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading

import pytest

from foldwise.outputs import OutputError, check_outputs, is_same, writing


def write(path, text="new"):
    with writing(path) as file:
        file.write(text)


def test_a_failed_writer_leaves_what_was_there(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(RuntimeError), writing(path) as file:
        file.write("half")
        raise RuntimeError
    assert path.read_text() == "old"
    with pytest.raises(KeyboardInterrupt), writing(tmp_path / "b", "wb") as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == ["a"]


def test_a_link_stays_and_its_target_is_written(tmp_path):
    (tmp_path / "folder").mkdir()
    target, link, loop = tmp_path / "folder" / "a", tmp_path / "link", tmp_path / "loop"
    link.symlink_to(target)
    write(link, "one")  # to a target that is to be
    write(link, "two")
    assert link.is_symlink()
    assert target.read_text() == "two"
    assert os.listdir(target.parent) == ["a"]
    loop.symlink_to(loop)
    with pytest.raises(OutputError, match="cannot write"):
        write(loop)
    assert loop.is_symlink()


def test_mode_and_other_names_of_a_file_stay(tmp_path):
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_text("old")
    path.chmod(0o640)
    os.link(path, other)
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert (path.read_text(), other.read_text()) == ("new", "old")


def test_a_pipe_is_written_to_and_stays(tmp_path):
    path, got = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: got.append(path.read_text()))
    reader.start()
    write(path, "text")
    reader.join(10)
    assert got == ["text"]
    assert stat.S_ISFIFO(path.stat().st_mode)


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /dev/stdout as a link into /proc")
def test_standard_output_by_its_name_keeps_what_was_said_before(tmp_path):
    """Replaced, the file would lose what is printed; opened anew, what was printed."""
    code = (
        "import sys; from foldwise.outputs import writing\n"
        "print('before', flush=True)\n"
        "with writing(sys.argv[1]) as file: file.write('text\\n')\n"
        "print('after')\n"
    )
    for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        with open(tmp_path / "out", "w") as out:
            subprocess.run([sys.executable, "-c", code, name], stdout=out, check=True)
        assert (tmp_path / "out").read_text() == "before\ntext\nafter\n"
    piped = subprocess.run([sys.executable, "-c", code, "/dev/stdout"], stdout=subprocess.PIPE, check=True)
    assert piped.stdout == b"before\ntext\nafter\n"


def test_what_cannot_be_written_is_told_before(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for name, words in {
        ".": "is a folder",
        "no/a": "does not exist",
        "file/a": "cannot write",
        "x" * 300: "too long",
        "a\0b": "cannot write",
    }.items():
        with pytest.raises((OutputError, ValueError), match=words if "\0" not in name else "null"):
            check_outputs({"--out": tmp_path / name})
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(OutputError, match="read-only"):
        check_outputs({"--out": tmp_path / "file"})
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    """A new file is refused; one that is there and may be written is written in place."""

    def closed(*args):
        raise PermissionError(13, "Permission denied")

    (tmp_path / "old").write_text("old")
    monkeypatch.setattr(os, "open", closed)
    with pytest.raises(OutputError, match="Permission denied"):
        check_outputs({"--out": tmp_path / "new"})
    write(tmp_path / "old")
    assert (tmp_path / "old").read_text() == "new"


def test_one_file_by_many_names(tmp_path):
    a = tmp_path / "a"
    a.write_text("")
    (tmp_path / "d").mkdir()
    os.link(a, tmp_path / "hard")
    (tmp_path / "soft").symlink_to(a)
    (tmp_path / "there").symlink_to(tmp_path)
    (tmp_path / "hanging").symlink_to(tmp_path / "new")
    for name in ("a", "hard", "soft", "d/../a", "there/a", "there/soft"):
        assert is_same(a, tmp_path / name), name
        with pytest.raises(OutputError, match="would replace the data"):
            check_outputs({"--out": tmp_path / name}, {"the data": a})
    for name in ("new", "NEW", "d/../new", "there/new", "hanging"):
        assert is_same(tmp_path / "new", tmp_path / name), name
        with pytest.raises(OutputError, match="one file"):
            check_outputs({"--out": tmp_path / "new", "--json": tmp_path / name})
    assert not is_same(a, tmp_path / "new")
    os.mkfifo(tmp_path / "pipe")
    check_outputs({"--out": tmp_path / "pipe", "--json": tmp_path / "pipe"})  # nothing is replaced there
    with pytest.raises(OutputError, match="one file"):
        check_outputs({"--json": "-", "--report": "-"})


def test_a_full_disk_is_told_with_the_file_and_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_text("old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("foldwise.outputs.os.fsync", full)
    with pytest.raises(OutputError, match=r"cannot write .*a: No space left on device\. Make room"):
        write(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]
