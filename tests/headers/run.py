"""Compiles every header of include/ alone and twice, and all of them in two translation units, and with clang++.

Alone, a header is read twice and checked, with g++'s warnings, but no code is made of it. All headers together are
compiled to one object, and this object is linked with itself: whatever is defined in it and not inline is then defined
twice. One line for each header and compiler, and for all headers.
"""
import argparse
import collections
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from checks import WARNINGS, checks, compile_source  # noqa: E402

INCLUDE = os.path.join(ROOT, "include")
# What folders of these names are made for.
NEEDS = {"mpi": "mpi.h", "simulated": "boost/context/fiber.hpp"}


def compile_headers(command, names, thing):
    text = "".join(f"#include <{name}>\n" for name in [*names, *names])
    status, output, files = compile_source([*command, "-std=c++20", "-I", INCLUDE], thing, text=text)
    return (output.splitlines()[:40], []) if status else ([], files)


def check_syntax(compiler, names, scratch):
    warnings = [] if "clang" in compiler else WARNINGS
    thing = os.path.join(scratch, "syntax-" + names[0].replace("/", "-"))
    return compile_headers([compiler, *warnings, "-fsyntax-only"], names, thing)


def check_linked(compiler, names, scratch):
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        thing = os.path.join(folder, "all")
        failures, files = compile_headers([compiler, "-O0", *WARNINGS, "-c", "-o", thing + ".o"], names, thing)
        if failures:
            return failures, []
        linked = subprocess.run(["ld", "-r", "-o", thing + ".both", thing + ".o", thing + ".o"], capture_output=True,
                                text=True)
    if linked.returncode:
        return ["not inline, so that two translation units clash:", *linked.stderr.splitlines()[:10]], []
    return [], files


def headers():
    for folder, _, names in os.walk(os.path.join(INCLUDE, "fathom")):
        yield from (os.path.relpath(os.path.join(folder, name), INCLUDE) for name in names if name.endswith(".hpp"))


def together():
    """(headers, place) of those that need nothing more, and of those that need the same."""
    known = collections.defaultdict(list)
    for header in sorted(headers()):
        words = header.removesuffix(".hpp").split("/")
        known["/".join(word for word in words if word in NEEDS)].append(header)
    return [(names, need or "all others") for need, names in sorted(known.items())]


def has(compiler, header):
    return not subprocess.run([compiler, "-E", "-x", "c++", "-"], input=f"#include <{header}>\n", capture_output=True,
                              text=True).returncode


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--compiler", default="g++", help="the compiler that builds objects (default: %(default)s)")
    options.add_argument("--cache", help="folder that remembers what passed")
    options = options.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        todo = checks(options.cache)
        alone = [([header], header) for header in sorted(headers())]
        for compiler, check, what in [(options.compiler, check_linked, together()),
                                      ("clang++", check_syntax, alone),
                                      (options.compiler, check_syntax, alone)]:
            if not shutil.which(compiler):
                todo.skip(f"{compiler}: all headers", f"no {compiler} here")
                continue
            version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
            for names, place in what:
                words = set(place.removesuffix(".hpp").split("/"))
                name = f"{compiler}: {place}" + (", linked" if check is check_linked else "")
                if missing := [NEEDS[word] for word in words & NEEDS.keys() if not has(compiler, NEEDS[word])]:
                    todo.skip(name, f"no {missing[0]} here")
                    continue
                todo.add(name, lambda c=compiler, n=names, f=check: f(c, n, scratch), version, names)
        todo.run()


main()
