"""Compiles every header of include/ alone, twice, and in two translation units of one program; also with clang++.

A header is compiled to an object from a source that includes it twice, and this object is linked with itself: whatever
is defined in it and not inline is then defined twice. One line for each header and compiler.
"""
import argparse
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


def twice(header):
    return f"#include <{header}>\n#include <{header}>\n"


def check_objects(compiler, header, scratch):
    thing = os.path.join(scratch, header.replace("/", "-"))
    status, output, files = compile_source(
        [compiler, "-std=c++20", "-O0", *WARNINGS, "-I", INCLUDE, "-c", "-o", thing + ".o"], thing, text=twice(header))
    if status:
        return output.splitlines()[:40], []
    linked = subprocess.run(["ld", "-r", "-o", thing + ".both", thing + ".o", thing + ".o"], capture_output=True,
                            text=True)
    os.remove(thing + ".o")
    if linked.returncode:
        return ["not inline, so that two translation units clash:", *linked.stderr.splitlines()[:10]], []
    os.remove(thing + ".both")
    return [], files


def check_syntax(compiler, header, scratch):
    thing = os.path.join(scratch, "syntax-" + header.replace("/", "-"))
    status, output, files = compile_source([compiler, "-std=c++20", "-fsyntax-only", "-I", INCLUDE], thing,
                                           text=twice(header))
    return (output.splitlines()[:40], []) if status else ([], files)


def headers():
    for folder, _, names in os.walk(os.path.join(INCLUDE, "fathom")):
        yield from (os.path.relpath(os.path.join(folder, name), INCLUDE) for name in names if name.endswith(".hpp"))


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
        for compiler, check in [(options.compiler, check_objects), ("clang++", check_syntax)]:
            if not shutil.which(compiler):
                todo.skip(f"{compiler}: all headers", f"no {compiler} here")
                continue
            version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
            for header in sorted(headers()):
                words = set(header[:-4].split("/"))
                if missing := [NEEDS[word] for word in words & NEEDS.keys() if not has(compiler, NEEDS[word])]:
                    todo.skip(f"{compiler}: {header}", f"no {missing[0]} here")
                    continue
                todo.add(f"{compiler}: {header}", lambda c=compiler, h=header, f=check: f(c, h, scratch), version)
        todo.run()


main()
