"""Programs that load CUDA's runtime, with the stand-in's library in its place: what they say where all is well, and
where a GPU, its driver or its library is not what is needed. With nvcc also kernels that it compiled, as far as their
launch."""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from checks import WARNINGS, checks  # noqa: E402

NVCC = os.environ.get("NVCC") or shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
INCLUDE = ["-std=c++20", "-I", os.path.join(ROOT, "include")]


def make(folder, compiler):
    """The library and one_gpu."""
    subprocess.run([compiler, *INCLUDE, *WARNINGS, "-O1", "-shared", "-fPIC", "-o", f"{folder}/libcudart.so.13",
                    os.path.join(HERE, "libcudart.cpp"), "-Wl,-soname,libcudart.so.13",
                    "-Wl,--version-script," + os.path.join(HERE, "libcudart.map")], check=True)
    subprocess.run([compiler, *INCLUDE, *WARNINGS, "-O1", "-o", f"{folder}/one_gpu",
                    os.path.join(HERE, "one_gpu.cpp")], check=True)


def run(folder, program, **planted):
    """(exit status, output, lines of the log)."""
    log = os.path.join(folder, program + "".join(f"-{name}-{value}" for name, value in planted.items()) + ".log")
    planted = {f"FATHOM_STAND_IN_{name.upper()}": str(value) for name, value in planted.items()}
    done = subprocess.run([os.path.join(folder, program)], capture_output=True, text=True, check=False,
                          env={**os.environ, "LD_LIBRARY_PATH": folder, "FATHOM_STAND_IN_LOG": log, **planted})
    with open(log, encoding="utf-8") as file:
        return done.returncode, done.stdout + done.stderr, file.read().splitlines()


def lacks(text, *wanted):
    return [f"found {text}, expected in it: {one}" for one in wanted if one not in text]


def check_one_gpu(folder):
    status, said, log = run(folder, "one_gpu")
    wrong = lacks(said, "copies on two streams come back", "a graph with a fork is replayed", "goes on after a call")
    wrong += [line for line in log if line.startswith("fault")]
    return wrong + lacks(log[-1], "left: 0 streams, 0 events, 0 graphs, 0 blocks") + ([said] if status else [])


def check_refused(folder):
    wrong = []
    for sentence, planted in [
            ("found no GPU, expected one", {"devices": 0}),
            ("found a driver for CUDA 12.4, which is older than the runtime, 13.0", {"driver": 12040}),
            ("found no driver of NVIDIA on this machine", {"driver": 0}),
            ("the CUDA runtime: found version 11.8, expected 12 or 13", {"version": 11080})]:
        status, said, log = run(folder, "one_gpu", **planted)
        wrong += lacks(said, sentence) + ([] if status == 1 else [f"found exit status {status}, expected 1"])
        wrong += [f"found {line}, expected no call before the refusal" for line in log[:-1]]
    return wrong


def check_launches(folder):
    subprocess.run([NVCC, *INCLUDE, "--expt-relaxed-constexpr", "-arch=sm_90a", "-Werror", "all-warnings",
                    "-diag-suppress", "554", "-cudart", "shared", "-o", f"{folder}/launches",
                    os.path.join(HERE, "launches.cu")], check=True)
    status, said, log = run(folder, "launches")
    wrong = lacks("\n".join(log), "launch 3 x 128, 0 bytes of shared memory, stream 1",
                  "launch 1 x 128, 102400 bytes of shared memory, stream 1", "cudaGraphLaunch stream 1",
                  "fault: double on stream 2 reads what double on branch 0 of a graph writes")
    wrong += lacks(said, "kernel double: found ", "307200 bytes of shared memory, expected it to start; the last "
                         "kernels put to work were double double double")
    wrong += [f"found exit status {status}, expected 0"] if status else []
    _, said, log = run(folder, "launches", capability=80)
    return wrong + lacks(said, "found an sm_80, but the kernels are built for sm_90") + [
        f"found {line}, expected no allocation before the refusal" for line in log if "Alloc" in line]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--compiler", default="g++", help="(default: %(default)s)")
    compiler = options.parse_args().compiler
    todo = checks(None)
    with tempfile.TemporaryDirectory() as folder:
        make(folder, compiler)
        todo.add("one GPU: copies, readbacks, graphs and errors", lambda: (check_one_gpu(folder), []))
        todo.add("no GPU, an old driver, another version", lambda: (check_refused(folder), []))
        if NVCC:
            todo.add("kernels that nvcc compiled are launched", lambda: (check_launches(folder), []))
        else:
            todo.skip("kernels that nvcc compiled are launched", "no nvcc here")
        todo.run()


main()
