"""Compiles every program of this folder twice: as it is it passes, with -DREFUSED it fails with the promised text.

The promise stands beside the bad line, and may go on in lines that are indented further:
    // refused: fathom: routed experts must divide evenly over the expert axis.
    //     fix: pick ep<N> where N divides n_routed_experts.
It must be in exactly one `error:` line, which is the only one that speaks with `fathom:`, and the output has at most 25
lines.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from checks import checks, compile_source  # noqa: E402

OUR_ERROR = re.compile(r"error: .*\bfathom:(?!:)")
MOST_LINES = 25


def promise(text):
    """The sentence after `// refused: `, or None."""
    found = re.search(r"// refused: (.*(?:\n\s*//    +.*)*)", text)
    return found and re.sub(r"\s*\n\s*//\s+", " ", found.group(1)).strip()


def judge(promised, control, control_output, refused, output, most_lines=MOST_LINES):
    """What is wrong with the two compilations, line by line."""
    lines = output.splitlines()
    if not promised or not promised.startswith("fathom: "):
        return ["the file has no comment `// refused: fathom: ...`"]
    if control:
        return ["the control does not compile:", *control_output.splitlines()[:30]]
    if not refused:
        return ["it compiles with -DREFUSED"]
    wrong = []
    if (times := sum("error:" in line and promised in line for line in lines)) != 1:
        wrong.append(f"{times} error lines have the promised text: {promised}")
    if (times := sum(bool(OUR_ERROR.search(line)) for line in lines)) != 1:
        wrong.append(f"{times} error lines speak with `fathom:`, expected 1")
    if len(lines) > most_lines:
        wrong.append(f"{len(lines)} lines of output, expected at most {most_lines}")
    return wrong + lines[:60] if wrong else []


def judge_is_strict():
    """The judge turns down each way in which a refusal can be false."""
    said = "fathom: no."
    good = f"a.cpp:1:1: error: static assertion failed: {said}\n"
    assert judge(said, 0, "", 1, good) == []
    for bad in [(None, 0, "", 1, good), (said, 1, "", 1, good), (said, 0, "", 0, good), (said, 0, "", 1, ""),
                (said, 0, "", 1, good + good), (said, 0, "", 1, "a.cpp:1:1: note: " + said),
                (said, 0, "", 1, good + "b.cpp:1:1: error: static assertion failed: fathom: another."),
                (said, 0, "", 1, good + "note\n" * MOST_LINES)]:
        assert judge(*bad), bad
    assert promise("  // refused: fathom: a\n  //     b\n  // c\n") == "fathom: a b"
    return [], []


def check(command, path, most_lines):
    with open(path, encoding="utf-8") as source:
        promised = promise(source.read())
    control, control_output, files = compile_source(command, path)
    refused, output, _ = compile_source([*command, "-DREFUSED"], path) if not control else (1, "", [])
    return judge(promised, control, control_output, refused, output, most_lines), files


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--compiler", default="g++", help="the compiler to ask (default: %(default)s)")
    options.add_argument("--cache", help="folder that remembers what passed")
    options.add_argument("names", nargs="*", metavar="NAME", help="only these programs")
    options = options.parse_args()
    program = shutil.which(options.compiler)
    todo = checks(options.cache)
    if not program:
        todo.skip("refusals", f"no {options.compiler} here")
        todo.run()
    command = [program, "-std=c++20", "-fsyntax-only", "-I", os.path.join(ROOT, "include")]
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    is_gcc = "Free Software Foundation" in version
    todo.add("the judge of refusals is strict", judge_is_strict)
    names = sorted(name[:-4] for name in os.listdir(HERE) if name.endswith(".cpp"))
    for name in options.names or names:
        path = os.path.join(HERE, name + ".cpp")
        # The bound on lines is a promise about g++; other compilers print more of each instantiation.
        todo.add(name, lambda path=path: check(command, path, MOST_LINES if is_gcc else 10**6), command, version)
    todo.run()


main()
