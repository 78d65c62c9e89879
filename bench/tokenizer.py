#!/usr/bin/env python3
"""Our tokenizer against Hugging Face tokenizers on one core: the same tokenizer.json, the same files, in turn; exit
status 1 when ours is slower or gives other ids.

Each side is a process of its own, bound to the same core, that encodes all files once a turn; the order changes from
turn to turn. Hugging Face's time is that of encode_batch_fast, its fastest call. The ratio is the median of the turns'.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEER = "tokenizers==0.23.*"
PEER_CODE = """
import json, sys, time
import tokenizers
words = tokenizers.Tokenizer.from_file(sys.argv[1])
texts = [open(path, encoding="utf-8", newline="").read() for path in open(sys.argv[2]).read().splitlines()]
for line in sys.stdin:
    start = time.perf_counter()
    encoded = words.encode_batch_fast(texts, add_special_tokens=False)
    seconds = time.perf_counter() - start
    count = hashed = 0
    for document in encoded:
        count += len(document.ids)
        for id in document.ids: hashed = (hashed * 31 + id) % 0xFFFFFFFB
    print(json.dumps({"seconds": seconds, "ids": count, "hash": hashed, "version": tokenizers.__version__}), flush=True)
"""


def python_of(build):
    """The interpreter of a small environment in the build folder, made when it is first needed."""
    place = os.path.join(build, "tokenizers-venv")
    python = os.path.join(place, "bin", "python")
    check = [python, "-c", "import tokenizers"]
    if not os.path.exists(python) or subprocess.run(check, capture_output=True).returncode:
        print(f"installing {PEER} in {place}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", PEER], check=True)
    return python


def headers():
    """Every fourth of the compiler's C++ headers, the text that ./dev train uses: about 3 MB."""
    newest = max(glob.glob("/usr/include/c++/*"), key=lambda path: [int(n) for n in os.path.basename(path).split(".")],
                 default=None)
    if newest is None: raise SystemExit("no C++ headers in /usr/include/c++; name files with --data")
    return sorted(path for path in glob.glob(newest + "/**/*", recursive=True) if os.path.isfile(path))[::4]


def turn(process):
    process.stdin.write("\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line: raise SystemExit(f"{process.args[0]} stopped with exit status {process.wait()}")
    return json.loads(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="the build folder")
    parser.add_argument("--tokenizer", help="a tokenizer.json (default: the released DeepSeek-V3 one, from PyPI)")
    parser.add_argument("--data", nargs="+", help="text files (default: every fourth of the compiler's C++ headers)")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    args = parser.parse_args()
    build = os.path.abspath(args.build)
    program = os.path.join(build, "bench", "tokenizer")
    if os.path.exists(os.path.join(build, "build.ninja")):
        subprocess.run(["ninja", "-C", build, "bench/tokenizer"], check=True, stdout=subprocess.DEVNULL)
    words = args.tokenizer
    if not words:
        words = os.path.join(build, "deepseek_tokenizer.json")
        subprocess.run([sys.executable, os.path.join(ROOT, "tests/oracle/tokenizer_real/fetch.py"), words], check=True)
    files = [os.path.abspath(path) for path in args.data or headers()]
    megabytes = sum(os.path.getsize(path) for path in files) / 1e6
    list_file = os.path.join(build, "tokenizer-bench.txt")
    with open(list_file, "w") as out: out.write("".join(path + "\n" for path in files))

    python = python_of(build)
    core = {max(os.sched_getaffinity(0))}
    start = lambda command: subprocess.Popen(
        command + [words, list_file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "TOKENIZERS_PARALLELISM": "false"}, preexec_fn=lambda: os.sched_setaffinity(0, core))
    sides = {"fathom": start([program]), "tokenizers": start([python, "-c", PEER_CODE])}
    warm = {name: turn(process) for name, process in sides.items()}
    same = all(warm["fathom"][key] == warm["tokenizers"][key] for key in ("ids", "hash"))
    speeds = {name: [] for name in sides}
    for i in range(args.turns):
        for name in sorted(sides, reverse=i % 2 == 1): speeds[name].append(megabytes / turn(sides[name])["seconds"])
    for process in sides.values():
        process.stdin.close()
        process.wait()
    ratios = [ours / theirs for ours, theirs in zip(speeds["fathom"], speeds["tokenizers"])]
    ratio = statistics.median(ratios)
    passed = same and ratio >= 1
    print(f"{len(files)} files, {megabytes:.1f} MB, {warm['fathom']['ids']} ids, one core, {args.turns} turns")
    print(f"{'':24}{'MB/s':>8}{'lowest':>9}{'highest':>9}")
    for name, label in (("fathom", "fathom"), ("tokenizers", f"tokenizers {warm['tokenizers']['version']}")):
        print(f"{label:24}{statistics.median(speeds[name]):8.2f}{min(speeds[name]):9.2f}{max(speeds[name]):9.2f}")
    print(f"{'ratio':24}{ratio:8.2f}{min(ratios):9.2f}{max(ratios):9.2f}   expected at least 1, and equal ids: "
          f"{'ok' if passed else 'MISSED' if same else 'MISSED: the ids differ'}")
    if args.json:
        with open(args.json, "w") as out:
            json.dump({"files": len(files), "megabytes": megabytes, "ids": warm["fathom"]["ids"], "equal_ids": same,
                       "megabytes_per_second": speeds, "ratio": ratio, "version": warm["tokenizers"]["version"],
                       "passed": passed}, out, indent=1)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
