"""Workers in processes of their own, which may die or hang without harm to the run."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

from .outcome import Outcome, outcome_from

ROOT = Path(__file__).parents[2]
PATIENCE = 300  # seconds for one seed; most take one


class Worker:
    """A process that runs one seed after the other. A new one starts if it died."""

    def __init__(self):
        self.process = None

    def run(self, task, seed):
        """Return the outcome of a seed; a death or a hang of the process is one, too."""
        if self.process is None:
            self.process = start_process()
        process = self.process
        process.stdin.write(f"{task} {seed}\n".encode())
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
        line = process.stdout.readline() if ready else b""
        if line:
            return outcome_from(json.loads(line))
        out = Outcome({})
        if ready:  # the end of the file: the process is about to be gone
            out.note("death", task, f"the process ended with {name_of(process.wait())}")
        else:
            out.note("hang", task, f"no answer within {PATIENCE} s")
        self.stop()
        return out

    def stop(self):
        """End the process, if there is one."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


def start_process():
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz.worker"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def name_of(code):
    """Return an exit code in words; a negative one is that of a signal."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def run_seeds(seeds, processes, seconds, report):
    """Run (task, seed) pairs for some time, and call ``report(task, seed, outcome)`` with each outcome."""
    end = time.monotonic() + seconds
    seeds = iter(seeds)

    def work():
        worker = Worker()
        while time.monotonic() < end:
            task, seed = next(seeds)
            report(task, seed, worker.run(task, seed))
        worker.stop()

    threads = [Thread(target=work) for _ in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
