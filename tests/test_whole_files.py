"""Files that are written completely or not at all, by several writers, over existing ones."""

import os
import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import leaftrace as lt
from leaftrace._data.files import SECONDS_TO_LEFTOVER, whole_file


def save(path, content):
    with whole_file(path) as file:
        for byte in content:
            file.write(bytes([byte]))


def test_several_threads_save_to_one_path(tmp_path):
    """One of the contents, whole, is there at the end, and nothing else."""
    path = tmp_path / "answer.bin"
    contents = [bytes([k]) * 2000 for k in range(16)]
    for _ in range(5):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda content: save(path, content), contents))
        assert path.read_bytes() in contents
    assert os.listdir(tmp_path) == ["answer.bin"]


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are POSIX's")
def test_permissions(tmp_path):
    """A file that is replaced keeps its permissions; a new one has those that `open` gives."""
    own = tmp_path / "private.bin"
    own.write_bytes(b"old")
    own.chmod(0o600)
    save(own, b"new")
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    (tmp_path / "plain").write_bytes(b"")
    save(tmp_path / "new.bin", b"new")
    expected = stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    assert stat.S_IMODE((tmp_path / "new.bin").stat().st_mode) == expected


def test_leftovers_of_killed_runs(tmp_path):
    """Old unfinished files of the same target go; young ones and those of others stay."""
    old = tmp_path / ".answer[1].bin.abc.part"
    young = tmp_path / ".answer[1].bin.def.part"
    other = tmp_path / ".answer1.bin.abc.part"
    for file in (old, young, other):
        file.write_bytes(b"half")
    long_ago = time.time() - SECONDS_TO_LEFTOVER - 60
    for file in (old, other):
        os.utime(file, (long_ago, long_ago))
    save(tmp_path / "answer[1].bin", b"whole")
    assert sorted(os.listdir(tmp_path)) == sorted([young.name, other.name, "answer[1].bin"])


def test_a_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "answer.bin"
    save(path, b"old")
    with pytest.raises(TypeError):
        save(path, [1, "not a byte"])
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["answer.bin"]


def test_a_folder_that_cannot_be_written_to(tmp_path):
    with (
        pytest.raises(lt.LeaftraceError, match=r"cannot write .*missing.*choose another"),
        whole_file(tmp_path / "missing" / "answer.bin"),
    ):
        pass


def test_a_writer_that_closes_the_file(tmp_path):
    """Compressing writers do."""
    with whole_file(tmp_path / "answer.bin") as file:
        file.write(b"whole")
        file.close()
    assert (tmp_path / "answer.bin").read_bytes() == b"whole"
