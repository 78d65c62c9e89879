"""Runs the program of MPI tests on several numbers of processes, then its jobs with a fault, then programs that
`launch` ranks in every way that there is.

A job with a fault must end with a sentence that names the rank and the operation; ways to launch must agree.

Usage: run.py COMM LAUNCH LAYOUTS, the programs of the sources of these names.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

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
# Layouts of which rank 1 goes wrong in the middle of a step, and what an engine's wait for it says.
BROKEN = {"pp=2,tp=2": 4, "dp=2,ep=2": 2}
WAITED_FOR = re.compile(r"rank \d: \w+ #\d+ of \w+ \(.+\) was not finished within 3 s: "
                        r"rank 1 (never came|came and stopped)")
# A run that changes its layout: (ranks, layout, steps in all).
CHANGING = [[(4, "pp=2,tp=2,zero=1", 2), (2, "dp=2,ep=2", 4), (1, "one", 6)],
            [(1, "one", 1), (4, "dp=2,tp=2,zero=3", 3), (4, "pp=4", 5), (2, "cp=2,zero=1", 6)]]
# Without the first option root is refused, without the second more ranks than cores.
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


def run(command, environment=None):
    return subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", errors="replace", timeout=300,
                          env={**os.environ, **(environment or {})})


def mpirun(program, ranks, *options, launcher=()):
    return run([*MPIRUN, *launcher, "-n", str(ranks), program, "-nc", *options])


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
    done = run(command, environment)
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != 3:
        raise ValueError(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return lines


def check_launch(program):
    try:
        alone = steps_of([program])
        for ranks in ("1", "2", "3"):
            processes, threads = steps_of([*MPIRUN, "-n", ranks, program]), steps_of([program, "--threads", ranks])
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
    done = run(command, environment)
    if done.returncode == 1 and promised in done.stderr:
        return [], []
    return [f"status {done.returncode}, no `{promised}` in:", *done.stderr.splitlines()], []


def check_layout_fault(program, fault, layout, *launcher):
    """One rank of a layout's step stops, dies or never comes: the job ends and says whom it waited for, and in what."""
    with tempfile.TemporaryDirectory() as folder:
        done = run([*MPIRUN, *launcher, "-n", str(BROKEN[layout]), program, fault, folder, layout])
    output = done.stdout + done.stderr
    # A launcher that is not told to go on ends a job whose process dies before others can say what they wait for.
    silent = fault == "killed" and not launcher
    said = "rank 1" in output and "exited on signal 9" in output if silent else WAITED_FOR.search(output)
    if said and (done.returncode or launcher) and done.stdout.startswith("1 "):
        return [], []
    return [f"status {done.returncode}, the first step and then a sentence about rank 1 expected in:",
            *output.splitlines()[-40:]], []


def state_of(folder):
    """The bytes of all numbers in a run's last save."""
    last = os.path.join(folder, "run", sorted(os.listdir(os.path.join(folder, "run")))[-1])
    names = sorted(name for name in os.listdir(last) if name.endswith(".safetensors"))
    return [(name, open(os.path.join(last, name), "rb").read()) for name in names]


def check_saves(program, parts):
    """A run goes on in other layouts from the saves of processes, as it does from those of threads, to the bit."""
    with tempfile.TemporaryDirectory() as processes, tempfile.TemporaryDirectory() as threads:
        for ranks, layout, steps in parts:
            command = [program, "train", "FOLDER", layout, str(steps)]
            seen = []
            for folder, before, after in ((processes, [*MPIRUN, "-n", str(ranks)] if ranks > 1 else [], []),
                                          (threads, [], ["--threads", str(ranks)])):
                command[2] = folder
                done = run([*before, *command, *after])
                lines = done.stdout.splitlines()
                if done.returncode or not lines or not lines[-1].startswith(f"{steps} "):
                    return [f"{layout}: status {done.returncode}", *lines, *done.stderr.splitlines()], []
                seen.append(lines)
            if seen[0] != seen[1]:
                return [f"{layout}: {ranks} processes gave", *seen[0], "and as many threads", *seen[1]], []
            if state_of(processes) != state_of(threads):
                return [f"{layout}: processes saved other bytes than threads"], []
    return [], []


def check_records(program):
    """Records of processes are one process' record, either way round; one rank's other weight is named."""
    with tempfile.TemporaryDirectory() as folder:
        alone, several = os.path.join(folder, "alone.safetensors"), os.path.join(folder, "several.safetensors")
        four = [*MPIRUN, "-n", "4"]
        for command, promised in [
                ([program, "record", alone, "one"], ""),
                ([*four, program, "compare", alone, "pp=2,tp=2"], "tensors agree"),
                ([*four, program, "record", several, "pp=2,tp=2"], ""),
                ([program, "compare", several, "one"], "tensors agree"),
                ([*four, program, "misplaced", alone, "pp=2,tp=2"],
                 "weights of layer 2: model.layers.2.self_attn.o_proj.weight differs by 0.711 on rank 3 of the first: "
                 "[0, 11]")]:
            done = run(command)
            if done.returncode or promised not in done.stdout or (not promised and done.stdout):
                return [f"{command[-3:]}: status {done.returncode}, expected `{promised}` in:",
                        *done.stdout.splitlines(), *done.stderr.splitlines()], []
    return [], []


def main():
    program, launched, layouts = map(os.path.abspath, sys.argv[1:4])
    todo = checks(None)
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
        for layout in BROKEN:
            for fault in ("stopped", "killed", "never_comes"):
                todo.add(f"mpi: rank 1 of {layout} {fault.replace('_', ' ')}",
                         lambda f=fault, on=layout: check_layout_fault(layouts, f, on))
            todo.add(f"mpi: rank 1 of {layout} killed, seen by the others",
                     lambda on=layout: check_layout_fault(layouts, "killed", on, "--enable-recovery"))
        for parts in CHANGING:
            todo.add(f"mpi: a run goes on as {', '.join(layout for _, layout, _ in parts)}, with the bits of threads",
                     lambda p=parts: check_saves(layouts, p))
        todo.add("mpi: a step's record of pp 2 x tp 2 is one process', and one rank's other weight is named",
                 lambda: check_records(layouts))
        torchrun = {"LOCAL_RANK": "0", "WORLD_SIZE": "4"}
        todo.add("launch: torchrun's variables are refused with the command to type",
                 lambda: check_refused([launched], torchrun, "start `mpirun -n 4 PROGRAM`"))
        todo.add("launch: a number of threads that is none",
                 lambda: check_refused([launched, "--threads", "many"], {}, '--threads: found "many"'))
    todo.run()


main()
