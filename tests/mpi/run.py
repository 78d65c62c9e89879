"""Runs the program of MPI tests on several numbers of processes, then its jobs with a fault, then a program that
`launch`es ranks in every way that there is.

A job with a fault must end with a sentence that names the rank and the operation; ways to launch must agree.
"""
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from checks import checks  # noqa: E402

# Each fault is one test case of the program, in which rank 1 of 3 goes wrong; what the output must hold.
FAULTS = {
    "stopped": "all_reduce #1 of world (second) was not finished within 1 s: rank 1 never came",
    "stopped inside": "in all_reduce #1 of world (second); rank 1 came and stopped",
    "absent": "start-up was not finished within 1 s: rank 1 never came",
    "never starts": "start-up was not finished within 1 s",
    "throws": "rank 1: the disk is full",
    "disagrees": "all_reduce #1 of world (shorter) and has 39996 bytes",
    "killed": "rank 1",
    "never comes": "all_reduce #1 of world (second) was not finished within 1 s: rank 1 never came",
    "forgets": "rank 1 left all_reduce #1 of world (forgotten) unfinished",
}
# A launcher ends a job whose process dies before others can say what they wait for; one told to go on leaves it to
# them.
SURVIVED = {"killed": "all_reduce #1 of world (second) was not finished within 1 s: rank 1 never came"}


def mpirun(program, ranks, *options, launcher=()):
    # Without the first option root is refused, without the second more ranks than cores.
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", *launcher, "-n", str(ranks), program, "-nc"]
    return subprocess.run([*command, *options], cwd=ROOT, capture_output=True, encoding="utf-8", errors="replace",
                          timeout=300)


def check_ranks(program, ranks):
    done = mpirun(program, ranks)
    passed = done.stdout.count("SUCCESS!")
    if done.returncode or passed != ranks:
        return [f"status {done.returncode}, {passed} of {ranks} ranks passed", *done.stdout.splitlines()[-60:],
                *done.stderr.splitlines()[-20:]], []
    return [], []


def check_fault(program, fault, promised, *launcher):
    done = mpirun(program, 3, "-ns", "-tc=" + fault, launcher=launcher)
    output = done.stdout + done.stderr
    if not done.returncode and not launcher:  # told to go on, it gives no status
        return ["the job ended well"], []
    return ([] if promised in output else [f"no `{promised}` in:", *output.splitlines()[-40:]]), []


def steps_of(command, environment=None):
    """The numbers of each step that a launched program printed, or its output."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", errors="replace", timeout=300,
                          env={**os.environ, **(environment or {})})
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != 3:
        raise ValueError(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return lines


def check_launch(program):
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n"]
    try:
        alone = steps_of([program])
        for ranks in ("1", "2", "3"):
            processes, threads = steps_of([*mpirun, ranks, program]), steps_of([program, "--threads", ranks])
            if processes != threads:
                return [f"{ranks} processes gave", *processes, "and as many threads", *threads], []
            for one, several in zip(alone, processes):
                for a, b in zip(map(float, one.split()), map(float, several.split())):
                    if abs(a - b) > 1e-12 * abs(a):
                        return [f"one rank gave {one}, {ranks} ranks {several}"], []
    except ValueError as problem:
        return str(problem).splitlines(), []
    return [], []


def check_refused(command, environment, promised):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300,
                          env={**os.environ, **environment})
    if done.returncode == 1 and promised in done.stderr:
        return [], []
    return [f"status {done.returncode}, no `{promised}` in:", *done.stderr.splitlines()], []


def main():
    program, launched, todo = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), checks(None)
    if not shutil.which("mpirun"):
        todo.skip("mpi", "no mpirun here")
    else:
        for ranks in (1, 2, 3, 4):
            todo.add(f"mpi: every collective on {ranks} processes", lambda n=ranks: check_ranks(program, n))
        for fault, promised in FAULTS.items():
            todo.add(f"mpi: rank 1 {fault}", lambda f=fault, p=promised: check_fault(program, f, p))
        for fault, promised in SURVIVED.items():
            todo.add(f"mpi: rank 1 {fault}, seen by the others",
                     lambda f=fault, p=promised: check_fault(program, f, p, "--enable-recovery"))
        todo.add("launch: processes and threads give the same bits, and one rank's numbers",
                 lambda: check_launch(launched))
        torchrun = {"LOCAL_RANK": "0", "WORLD_SIZE": "4"}
        todo.add("launch: torchrun's variables are refused with the command to type",
                 lambda: check_refused([launched], torchrun, "start `mpirun -n 4 PROGRAM`"))
        todo.add("launch: a number of threads that is none",
                 lambda: check_refused([launched, "--threads", "many"], {}, '--threads: found "many"'))
    todo.run()


main()
