"""What the library costs at compile time, against a file with <vector> and <filesystem> compiled in the same run.

Each program is compiled as Meson compiles the training example, ccache off, in rounds so that all of them meet the same
machine; processor time (user and system; g++ works in one thread), best of the rounds. The counts of template
instantiations come from clang++ -ftime-trace; they do not depend on the machine and are held against
bench/compile/baseline.json.
Exits with 1 when a target is missed.
"""
import argparse
import collections
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "house"))
from rooms import ROOMS  # noqa: E402

INCLUDE = os.path.join(ROOT, "include")
BASELINE = os.path.join(ROOT, "bench", "compile", "baseline.json")
PROGRAMS = {name: os.path.join(ROOT, path) for name, path in {
    "reference": "bench/compile/reference.cpp",
    "fathom.hpp": "bench/compile/header.cpp",
    "one recipe": "bench/compile/one_recipe.cpp",
    "two recipes": "bench/compile/two_recipes.cpp",
    "training example": "examples/pretrain.cpp",
    "layout on paper": "examples/layout.cpp",
    "two layouts": "bench/compile/two_layouts.cpp",
}.items()}
COUNTED = ["fathom.hpp", "one recipe", "two recipes"]
GROWTH = 1.10  # instantiations of a program over its baseline: beyond, somebody must look and say --update


def compile_command(build):
    """The compiler and its flags for the examples, without files."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as listing:
        entries = json.load(listing)
    entry = next((entry for entry in entries if "examples/" in entry["output"]), entries[0])
    words = [word for word in shlex.split(entry["command"]) if os.path.basename(word) != "ccache"]
    command = []
    while words:
        word = words.pop(0)
        if word in ("-o", "-MF", "-MQ", "-c"):
            words.pop(0)
        elif not word.startswith(("-I", "-M", "-W")):
            command.append(word)
    return [*command, "-I", INCLUDE]


def cost(command, source):
    """Processor seconds and peak MiB of a compilation."""
    with tempfile.TemporaryDirectory() as folder:
        child = subprocess.Popen([*command, "-c", source, "-o", os.path.join(folder, "x.o")],
                                 env={**os.environ, "CCACHE_DISABLE": "1"})
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{source} does not compile")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def homes():
    """The first room, in the order of data flow, in which each identifier stands; its users are in later rooms."""
    home = {}
    for room in ROOMS:
        for folder, _, names in os.walk(os.path.join(INCLUDE, "fathom", room)):
            for name in names:
                with open(os.path.join(folder, name), encoding="utf-8") as header:
                    code = re.sub(r'//.*|"[^"\n]*"', " ", header.read())
                for word in re.findall(r"[A-Za-z_]\w*", code):
                    home.setdefault(word, room)
    return home


def instantiations(source, home):
    """How many classes and functions clang instantiates, by room."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["clang++", "-std=c++20", "-I", INCLUDE, "-c", source, "-o", os.path.join(folder, "x.o"),
                        "-ftime-trace", "-ftime-trace-granularity=0"], check=True)
        with open(os.path.join(folder, "x.json"), encoding="utf-8") as trace:
            events = json.load(trace)["traceEvents"]
    counts = collections.Counter()
    for event in events:
        if event["name"] in ("InstantiateClass", "InstantiateFunction"):
            name = event["args"]["detail"]
            if found := re.match(r"fathom::(?:detail::)?(\w+)(?:::(\w+))?", name):
                counts[home.get(found.group(1), "program")] += 1
            else:
                counts["standard library" if name.startswith(("std::", "__gnu_cxx::", "__")) else "program"] += 1
    return counts


def count_all(update):
    """Prints instantiations by room against the baseline; returns (counts, misses)."""
    if not shutil.which("clang++"):
        print("\nno clang++ here: template instantiations are not counted")
        return {}, []
    version = subprocess.run(["clang++", "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]
    home = homes()
    counts = {name: instantiations(PROGRAMS[name], home) for name in COUNTED}
    known = {"compiler": version, "instantiations": {}}
    if os.path.exists(BASELINE):
        with open(BASELINE, encoding="utf-8") as file:
            known = json.load(file)
    print(f"\ntemplate instantiations ({version}); in brackets: against the baseline"
          + (f" of {known['compiler']}" if known["compiler"] != version else ""))
    print(f"{'room':18}" + "".join(f"{name:>20}" for name in COUNTED))
    for room in [*ROOMS, "standard library", "program", "all"]:
        cells = []
        for name in COUNTED:
            old = collections.Counter(known["instantiations"].get(name, {}))
            count, before = (c.total() if room == "all" else c[room] for c in (counts[name], old))
            cells.append((count, count - before))
        if any(count or change for count, change in cells):
            print(f"{room:18}" + "".join(f"{f'{count} ({change:+d})':>20}" for count, change in cells))
    misses = [f"{name}: {counts[name].total()} instantiations, baseline {sum(old.values())}"
              for name, old in known["instantiations"].items()
              if known["compiler"] == version and counts[name].total() > GROWTH * sum(old.values())]
    if update:
        with open(BASELINE, "w", encoding="utf-8") as file:
            by_room = {name: dict(sorted(c.items())) for name, c in counts.items()}
            json.dump({"compiler": version, "instantiations": by_room}, file, indent=2)
            file.write("\n")
        print("baseline updated")
    return counts, [] if update else misses


def main():
    options = argparse.ArgumentParser(prog="./dev bench compile", description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("build", help=argparse.SUPPRESS)
    options.add_argument("--rounds", type=int, default=3, help="compilations of each program (default: %(default)s)")
    options.add_argument("--json", metavar="FILE", help="write the figures to FILE")
    options.add_argument("--update", action="store_true", help="make this run's instantiation counts the baseline")
    options = options.parse_args()

    command = compile_command(options.build)
    print(" ".join(command))
    seconds, memory = collections.defaultdict(list), collections.defaultdict(list)
    for _ in range(options.rounds):
        for name, source in PROGRAMS.items():
            used, peak = cost(command, source)
            seconds[name].append(used)
            memory[name].append(peak)
    best = {name: min(values) for name, values in seconds.items()}
    peak = {name: max(values) for name, values in memory.items()}
    best["one more recipe"] = best["two recipes"] - best["one recipe"]
    best["one more layout"] = best["two layouts"] - best["layout on paper"]

    print(f"\n{'program':18}{'seconds':>9}{'ratio':>8}{'at most':>9}{'peak MiB':>10}{'at most':>9}")
    misses = []
    most = {"fathom.hpp": 4, "training example": 25, "one more recipe": 2, "layout on paper": 60,
            "one more layout": 2}
    most_memory = {"training example": 1500}
    for name, used in best.items():
        ratio = used / best["reference"]
        mib = f"{peak[name]:.0f}" if name in peak else ""
        print(f"{name:18}{used:9.2f}{ratio:8.2f}{most.get(name, ''):>9}{mib:>10}{most_memory.get(name, ''):>9}")
        if ratio > most.get(name, float("inf")):
            misses.append(f"{name}: {ratio:.2f} times the reference, at most {most[name]}")
        if peak.get(name, 0) > most_memory.get(name, float("inf")):
            misses.append(f"{name}: {mib} MiB, at most {most_memory[name]}")
    counts, grown = count_all(options.update)
    misses += grown
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"seconds": best, "peak_mib": peak, "all_seconds": seconds, "instantiations": counts,
                       "missed": misses}, file, indent=2)
            file.write("\n")
    print("\n" + "\n".join(f"MISSED {miss}" for miss in misses) if misses else "\nall targets met")
    return bool(misses)


sys.exit(main())
