"""Every kernel has a test on the simulated block, and nvcc makes of each for Hopper what registers.txt says.

registers.txt: one line a kernel, with its registers a thread and the bytes that it spills to memory. Without nvcc (in
PATH, in CUDA's usual folder, or named by NVCC) that part is skipped; registers are compared for the release of nvcc
that """
import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from checks import checks  # noqa: E402

GOLDEN = os.path.join(HERE, "registers.txt")
NVCC = os.environ.get("NVCC") or shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
# Warning 554 is about matrix<const T>'s conversion to itself, which is never called.
FLAGS = ["-std=c++20", "--expt-relaxed-constexpr", "-arch=sm_90a", "-Werror", "all-warnings", "-diag-suppress", "554",
         "-I", os.path.join(ROOT, "include")]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def kernels():
    """The names of all kernels of include/: structs that say `name` and `threads` for a launch."""
    for folder, _, names in sorted(os.walk(os.path.join(ROOT, "include", "fathom"))):
        for name in sorted(names):
            if name.endswith("kernel.hpp") and "/cuda" not in folder:
                text = read(os.path.join(folder, name))
                yield from re.findall(r"struct (\w+) \{[^}]*?static constexpr const char\* name = ", text)


def release():
    said = subprocess.run([NVCC, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"release ([\d.]+), V([\d.]+)", said).group(2)


def compile_all():
    """(errors, lines of the table, files read) of all.cu."""
    with tempfile.TemporaryDirectory() as scratch:
        listing = os.path.join(scratch, "all.d")
        done = subprocess.run([NVCC, *FLAGS, "-Xptxas", "-v", "-MD", "-MF", listing, "-cubin", "-o",
                               os.path.join(scratch, "all.cubin"), os.path.join(HERE, "all.cu")],
                              capture_output=True, encoding="utf-8", errors="replace", check=False)
        output = subprocess.run(["c++filt"], input=done.stdout + done.stderr, capture_output=True, encoding="utf-8",
                                check=True).stdout
        if done.returncode:
            return output.splitlines()[:40] or ["nvcc failed without a word"], [], []
        files = read(listing).replace("\\\n", " ").split(":", 1)[1].split()
    found = re.findall(r"Compiling entry function '.*?run_kernel<(.*?), fathom::matrix<.*?"
                       r"(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers", output, re.DOTALL)
    lines = [f"{re.sub(r'fathom::(ops::|optim::)?', '', name)}: {registers} registers, {int(stores) + int(loads)} spilt"
             for name, stores, loads, registers in found]
    return [], sorted(lines), [file for file in files if file.startswith(ROOT)]


def make_for_device(folder):
    """The kernels' tests and device.cu as one program."""
    os.makedirs(folder, exist_ok=True)
    sources = [name for name in sorted(os.listdir(HERE), reverse=True)
               if name == "device.cu" or name.endswith(".cpp") and '"launch.hpp"' in read(os.path.join(HERE, name))]
    objects = [os.path.join(folder, name + ".o") for name in sources]

    def make(name, made):
        language = "c++" if name == "device.cu" else "cu"  # nvcc takes operator new for a function of the GPU
        subprocess.run([NVCC, *FLAGS, "-x", language, "-O1", "-c", "-o", made, os.path.join(HERE, name)], check=True)

    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(make, sources, objects))
    subprocess.run([NVCC, "-arch=sm_90a", "-cudart", "shared", "-o", os.path.join(folder, "kernels"), *objects,
                    "-ldnnl", "-lgomp", "-lpthread"], check=True)


def check_compiled():
    errors, lines, files = compile_all()
    if errors:
        return errors, []
    # Kernels in double and plain ones are for comparisons, not for speed.
    wrong = [f"{line}, expected none" for line in lines
             if not line.endswith(" 0 spilt") and "double" not in line and "_plain_" not in line]
    made = {re.match(r"\w+", line).group(0) for line in lines}
    wrong += [f"all.cu does not make {name}" for name in sorted(set(kernels()) - made)]
    golden = read(GOLDEN).splitlines()
    if golden[0] == f"nvcc {release()}":
        wrong += [f"registers.txt does not say: {line}" for line in lines if line not in golden]
        wrong += [f"registers.txt says: {line}" for line in golden[1:] if line not in lines]
    return wrong, [*files, GOLDEN]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cache", help="folder that remembers what passed")
    options.add_argument("--update", action="store_true", help="write registers.txt")
    options.add_argument("--device", metavar="FOLDER", help="make the program of the tests on a GPU")
    options = options.parse_args()
    if options.device:
        make_for_device(options.device)
        return
    if options.update:
        errors, lines, _ = compile_all()
        if errors:
            sys.exit("\n".join(errors))
        with open(GOLDEN, "w", encoding="utf-8") as file:
            file.write("\n".join([f"nvcc {release()}", *lines]) + "\n")
        return
    tests = "".join(read(os.path.join(HERE, name)) for name in sorted(os.listdir(HERE)) if name.endswith(".cpp"))
    todo = checks(options.cache)
    names = list(kernels())
    todo.add("kernels are found", lambda: ([] if len(names) > 20 else [f"found {names}"], []))
    todo.add("every kernel has a test", lambda: (
        [f"no test of tests/kernels launches {name}" for name in names if not re.search(rf"\b{name}\b", tests)], []))
    if NVCC:
        todo.add("nvcc compiles every kernel", check_compiled, release())
    else:
        todo.skip("nvcc compiles every kernel", "no nvcc here")
    todo.run()


main()
