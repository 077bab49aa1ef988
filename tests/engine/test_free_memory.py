"""Memory that can be used: the least of what the machine, the control groups and the process allow."""

import os
import subprocess
import sys

import pytest

from leaftrace._engine.free_memory import available_memory

MEMINFO = "MemTotal: 9000 kB\nMemAvailable: 8000 kB\n"


def system(tmp_path, files):
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return available_memory(tmp_path)


def test_the_machine_alone(tmp_path):
    assert system(tmp_path, {"proc/meminfo": MEMINFO}) == 8000 * 1024


def test_a_group_of_version_2_and_those_around_it(tmp_path):
    group = "sys/fs/cgroup/pod/box"
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "0::/pod/box\n",
        f"{group}/memory.max": "max\n",
        f"{group}/memory.current": "100\n",
        "sys/fs/cgroup/pod/memory.max": "5000\n",
        "sys/fs/cgroup/pod/memory.current": "3000\n",
        "sys/fs/cgroup/pod/memory.stat": "anon 1\ninactive_file 600\n",
    }
    assert system(tmp_path, files) == 5000 - 3000 + 600
    assert system(tmp_path, {f"{group}/memory.max": "1100"}) == 1000


def test_a_group_of_version_1_seen_from_inside_a_container(tmp_path):
    """The path is the machine's, the mounted folder is the container's own group."""
    group = "sys/fs/cgroup/memory"
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "4:cpu,memory:/docker/abc\n3:pids:/\n",
        f"{group}/memory.limit_in_bytes": "4000",
        f"{group}/memory.usage_in_bytes": "3900",
    }
    assert system(tmp_path, files) == 100
    assert system(tmp_path, {f"{group}/memory.usage_in_bytes": "4100"}) == 0  # never below zero


@pytest.mark.skipif(sys.platform != "linux", reason="limits on the address space are Linux's")
def test_the_limit_of_the_process():
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)); "
        "from leaftrace._engine.free_memory import available_memory; print(available_memory())"
    )
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # each thread takes address space
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    assert 0 < int(out.stdout) < 3 << 30
