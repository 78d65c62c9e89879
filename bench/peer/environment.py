"""The virtual environment with PyTorch and transformers, made in the build folder when it is first needed."""

import os, shutil, subprocess, sys, time

REQUIREMENTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "requirements.txt")


def python_of(build):
    """The environment's interpreter; installs it (a minute, 5.6 GB) unless the pinned versions are there already."""
    place = os.path.join(build, "peer-venv")
    python, mark = os.path.join(place, "bin", "python"), os.path.join(place, "installed.txt")
    wanted = open(REQUIREMENTS).read()
    if os.path.exists(mark) and open(mark).read() == wanted:
        return python
    since = time.time()
    print(f"installing PyTorch and transformers in {place}", file=sys.stderr, end=" ", flush=True)
    shutil.rmtree(place, ignore_errors=True)
    for command, trouble in (
        ([sys.executable, "-m", "venv", place], "Debian's package python3-venv is needed"),
        (
            [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", REQUIREMENTS],
            "the package index must be reachable, and 6 GB of disk free",
        ),
    ):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise SystemExit(f"\n{done.stdout}{' '.join(command)} failed: {trouble}")
    with open(mark, "w") as f:
        f.write(wanted)
    print(f"{time.time() - since:.0f} s", file=sys.stderr)
    return python
