"""Checks the walls of the house: who includes whom, what a header looks like, and what nobody writes."""
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from checks import checks  # noqa: E402
from rooms import ROOMS  # noqa: E402

# Which folders may include what is not everywhere.
SOME_MACHINES = {
    re.compile(r"cuda.*|cub/.*|thrust/.*|cublas.*|cudnn.*|cooperative_groups.*|nv/.*|cutlass/.*"): {"cuda", "nccl"},
    re.compile(r"nccl.*"): {"cuda", "nccl"},
    re.compile(r"mpi\.h"): {"mpi"},
}
HEAVY = {"regex", "iostream", "format", "ranges"}
VAGUE = {"util", "utils", "common", "helper", "helpers", "misc"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|\b(placeholder|for now)\b", re.IGNORECASE)
# Written in parts so that this file keeps the rule that it checks.
ELSEWHERE = re.compile(r"\.\./" + r"shared\b|/wo" + r"rk/(shared|main)\b|/tm" + r"p/brief\b")
MOST_LINES, MOST_COLUMNS = 500, 120


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def tree(*folders, ending=("",)):
    """The paths of the project's files, from its root, sorted; no build folders, no caches."""
    for start in folders or (".",):
        for folder, inner, names in os.walk(os.path.join(ROOT, start)):
            at_root = folder == os.path.join(ROOT, ".")
            inner[:] = sorted(name for name in inner if name not in ("__pycache__", "runs")
                              and (name == ".ci" or not name.startswith("."))
                              and not (at_root and name.startswith("build")))
            for name in sorted(names):
                if name != ".git" and name.endswith(tuple(ending)):  # a file in a work tree of git's
                    yield os.path.relpath(os.path.join(folder, name), ROOT)


def headers():
    return tree("include/fathom", ending=[".hpp"])


def includes(path):
    """The (line number, header) of each #include."""
    for number, line in enumerate(read(path).splitlines(), 1):
        if found := re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line):
            yield number, found.group(1)


def room(path):
    """The room of a header named from include/, such as fathom/core/error.hpp or the front door fathom/core.hpp."""
    parts = path.removesuffix(".hpp").split("/")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else None


def first_comment(text):
    found = re.match(r"(?://[^\n]*\n)+|/\*.*?\*/\s*\n", text, re.DOTALL)
    return found.group(0) if found else ""


def rule_rooms_are_known():
    for path in headers():
        parts = path.split("/")[2:]
        if len(parts) > 1 and parts[0] not in ROOMS:
            yield f"{path}: {parts[0]} is no room; the rooms are {' '.join(ROOMS)}"


def rule_walls():
    for path in headers():
        home = room(path.removeprefix("include/"))
        for number, header in includes(path):
            other = room(header)
            if home and header.startswith("fathom/") and not other:
                yield f"{path}:{number}: a room includes {header}, which is above all rooms"
            elif home and other and other != home and other not in ROOMS[home].split():
                yield f"{path}:{number}: {home} may not include {other}, only: {ROOMS[home] or 'no other room'}"


def rule_details_stay_in_their_room():
    for path in tree("include/fathom", "examples", "bench", "docs", ending=[".hpp", ".cpp", ".cu"]):
        home = room(path.removeprefix("include/"))
        for number, header in includes(path):
            if "/detail/" in header and room(header) != home and header.startswith("fathom/"):
                yield f"{path}:{number}: {header} is private to {room(header)}"


def rule_includes_exist_and_are_named_from_the_root():
    for path in tree("include/fathom", "examples", "bench", "tests", ending=[".hpp", ".cpp", ".cu"]):
        for number, header in includes(path):
            if header.startswith("fathom/") and not os.path.exists(os.path.join(ROOT, "include", header)):
                yield f"{path}:{number}: there is no {header}"
            elif path.startswith("include/") and header.endswith(".hpp") and "/" not in header:
                yield f"{path}:{number}: {header} must be named from include/, as fathom/room/name.hpp"


def rule_machines_are_optional():
    for path in headers():
        folders = set(path.removesuffix(".hpp").split("/"))
        for number, header in includes(path):
            for pattern, homes in SOME_MACHINES.items():
                if pattern.fullmatch(header) and not folders & homes:
                    yield f"{path}:{number}: only folders named {' or '.join(sorted(homes))} include {header}"


def rule_light_headers():
    for path in headers():
        for number, header in includes(path):
            if header in HEAVY:
                yield f"{path}:{number}: <{header}> costs every user compile time"


def rule_headers_say_why_they_exist():
    for path in headers():
        text = read(path)
        if not (comment := first_comment(text)):
            yield f"{path}: does not open with a comment that says why it exists"
        elif not re.match(r"\s*#pragma once\n", text[len(comment):]):
            yield f"{path}: #pragma once must follow the first comment"


def rule_headers_are_short():
    for path in headers():
        text = read(path)
        if (lines := text.count("\n")) > MOST_LINES and not re.search(r"\blong\b", first_comment(text)):
            yield f"{path}: {lines} lines, more than {MOST_LINES}; its first comment must say why it is long"


def rule_lines_fit():
    for path in tree("include", "examples", "bench", "tests", "tools", ending=[".hpp", ".cpp", ".cu", ".py"]):
        if path.startswith("tests/oracle/"):  # as the reference was made
            continue
        for number, line in enumerate(read(path).splitlines(), 1):
            if len(line) > MOST_COLUMNS:
                yield f"{path}:{number}: {len(line)} columns, more than {MOST_COLUMNS}"


def rule_names_say_something():
    for path in tree("include", "examples", "bench", "tests", "tools", "docs"):
        for part in path.split("/"):
            if part.split(".")[0].lower() in VAGUE:
                yield f"{path}: {part} says nothing about what is in it"
        stem, ending = os.path.splitext(os.path.basename(path))
        if ending in (".hpp", ".cpp") and not re.fullmatch(r"[a-z0-9_]+", stem):
            yield f"{path}: names of sources are snake_case"


def rule_front_page():
    """fathom.hpp includes the front doors in order, each below a sentence about its room."""
    path = "include/fathom/fathom.hpp"
    if not os.path.exists(os.path.join(ROOT, path)):
        return
    lines = read(path).splitlines()
    found = [room(header) for _, header in includes(path) if header.startswith("fathom/")]
    doors = [name for name in ROOMS if os.path.exists(os.path.join(ROOT, f"include/fathom/{name}.hpp"))]
    if found != doors:
        yield f"{path}: includes {found}, expected the front doors in order: {doors}"
    for number, header in includes(path):
        if not lines[number - 2].startswith("//"):
            yield f"{path}:{number}: no sentence above {header}"


def rule_front_doors():
    """Beside a room's folder stands the header that includes what it offers."""
    for name in ROOMS:
        door = f"include/fathom/{name}.hpp"
        if any(tree(f"include/fathom/{name}", ending=[".hpp"])) and not os.path.exists(os.path.join(ROOT, door)):
            yield f"{door} is missing"


def rule_nothing_unfinished():
    for path in tree("include", "examples", "bench", ending=[".hpp", ".cpp", ".cu", ".py"]):
        for number, line in enumerate(read(path).splitlines(), 1):
            if found := UNFINISHED.search(line):
                yield f"{path}:{number}: `{found.group(0)}`"


def rule_whole_by_itself():
    """A clone with nothing beside it is complete: no file names a place outside of it."""
    for path in tree():
        if os.path.getsize(os.path.join(ROOT, path)) > 4 << 20:
            continue
        for number, line in enumerate(read(path).splitlines(), 1):
            if found := ELSEWHERE.search(line):
                yield f"{path}:{number}: names {found.group(0)}"


def rule_formatted():
    """As clang-format 14 writes it; other versions differ in details."""
    if not (tool := shutil.which("clang-format")):
        return
    if " 14." not in subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout:
        return
    paths = list(tree("include", "examples", "bench", "tests", ending=[".hpp", ".cpp", ".cu"]))
    said = subprocess.run([tool, "--dry-run", *paths], cwd=ROOT, capture_output=True, text=True, check=False).stderr
    for path in sorted({line.split(":")[0] for line in said.splitlines() if "warning:" in line}):
        yield f"{path}: run clang-format -i"


def main():
    todo = checks(None)
    for name, rule in [(name, rule) for name, rule in globals().items() if name.startswith("rule_")]:
        todo.add(name.removeprefix("rule_").replace("_", " "), lambda rule=rule: (list(rule()), []))
    todo.run()


main()
