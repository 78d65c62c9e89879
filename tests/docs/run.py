"""Builds and runs what README.md and docs/ show: every program, every command, every output, in the order of the page.

A page's programs and commands share one folder, as they do for its reader.
- ```cpp blocks that begin with `// NAME.cpp` (or .hpp) are files. A .cpp with main() becomes the program NAME; when a
  ```text block with `error:` follows instead, it must not compile and print these lines.
- ```sh blocks are run. What takes long is run in a short form, see page.shortened.
- ```meson blocks are the meson.build of a project that has Fathom as its subproject.
- A ```text block is what the block before it prints; in one that says `text numbers vary` numbers may differ, and one
  that says `text for example` is not compared.
Programs are compiled with the flags that pkg-config gives for an installed Fathom, with the project's warnings as
errors, and at -O1 instead of -O3; they are kept and compiled again when a header has changed.
"""
import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from checks import WARNINGS, checks  # noqa: E402

DOCS = sorted(name for name in os.listdir(os.path.join(ROOT, "docs")) if name.endswith(".md"))
NEEDS = {"docs/kernels.md": "boost/context/fiber.hpp"}  # pages whose programs need what is optional
PAGES = ["README.md", *(f"docs/{name}" for name in DOCS)]
NUMBER = re.compile(r"[-+]?\d[\d.,']*(e[-+]?\d+)?")
COPIED = shutil.ignore_patterns(".git", "*_cache", "build*", "runs", "oracle", "__pycache__")


def run(command, folder, environment=None):
    """(status, output) of a shell command; standard error is part of the output."""
    done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", command], cwd=folder, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", stdin=subprocess.DEVNULL,
                          env={**os.environ, "LC_ALL": "C.UTF-8", **(environment or {})})
    return done.returncode, done.stdout


def blocks(text):
    """The (line, kind, content) of each fenced block."""
    lines = text.split("\n")
    start = None
    for number, line in enumerate(lines, 1):
        if start is None and line.startswith("```"):
            start, kind = number, line[3:].strip()
        elif start is not None and line == "```":
            yield start, kind, "\n".join(lines[start:number - 1]) + "\n"
            start = None
    if start is not None:
        yield start, "never closed", ""


def differences(expected, found, kind):
    """What is wrong with an output."""
    if "for example" in kind:
        return []
    want, have = expected.strip().splitlines(), found.strip().splitlines()
    if "numbers vary" in kind:
        want, have = ([NUMBER.sub("N", re.sub(r"[ -]+(?=\d)", " ", line)) for line in lines] for lines in (want, have))
    return [] if want == have else ["it prints:", *found.splitlines()[:60], "the page shows:", *expected.splitlines()]


def write_if_new(path, text):
    """Leaves a file alone that says the same, so that what was made of it stays newer."""
    if os.path.exists(path) and open(path, encoding="utf-8").read() == text:
        return
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


class installation:
    """Fathom as `meson install` leaves it, in a folder of its own: made when first asked for."""

    def __init__(self, build, into):
        self.build, self.into, self.lock, self.variables = build, into, threading.Lock(), None

    def environment(self):
        with self.lock:
            if self.variables is None:
                shutil.rmtree(self.into, ignore_errors=True)
                install = f"meson install -C '{self.build}' --no-rebuild --quiet --destdir '{self.into}'"
                status, output = run(install, ROOT)
                places = [folder for folder, _, names in os.walk(self.into) if "fathom.pc" in names]
                if status or not places:
                    raise RuntimeError(f"meson install: {output}")
                self.variables = {"PKG_CONFIG_PATH": places[0], "PKG_CONFIG_SYSROOT_DIR": self.into}
            return self.variables


class page:
    """One page: its folder, its programs, and its checks in their order."""

    def __init__(self, path, todo, installed, options):
        self.path, self.todo, self.installed, self.options = path, todo, installed, options
        name = path.replace("/", "-").removesuffix(".md")
        self.kept, self.folder = os.path.join(options.cache, name), os.path.join(options.cache, name + "-run")
        self.last, self.compiling = None, "c++ -std=c++20"
        os.makedirs(self.kept, exist_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            text = file.read()
        found = list(blocks(text))
        todo.add(f"{path}: links", lambda: (self.dead_links(text), []))
        for _, kind, content in found:
            if kind == "sh":
                for line in content.splitlines():
                    if line.startswith("c++ "):
                        self.compiling = line
        for (line, kind, content), following in zip(found, [*found[1:], (0, "", "")]):
            expected = following if following[1].startswith("text") else None
            self.read(line, kind, content, expected)

    def dead_links(self, text):
        """Links and pictures of the project's own that are not there."""
        text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        places = [place for place in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in place]
        home = os.path.dirname(os.path.join(ROOT, self.path))
        return [f"there is no {place}" for place in places if not os.path.exists(os.path.join(home, place))]

    def add(self, line, name, check):
        """A check that waits for the one before it on the page and is not run when that failed."""
        before, self.last = self.last, threading.Event()
        mine = self.last
        mine.passed = False

        def follow():
            try:
                if before:
                    before.wait()
                    if not before.passed:
                        return ["what stands before it on the page failed"], []
                failures = check()
                mine.passed = not failures
                return failures, []
            finally:
                mine.set()

        self.todo.add(f"{self.path}:{line}: {name}", follow)

    def read(self, line, kind, content, expected):
        named = re.match(r"// (\w+\.[ch]pp)\n", content)
        if kind == "never closed":
            self.add(line, "block", lambda: ["the block is never closed"])
        elif kind == "cpp" and named:
            name = named.group(1)
            refused = expected and "error:" in expected[2]
            if name.endswith(".hpp"):
                self.add(line, name, lambda: write_if_new(os.path.join(self.kept, name), content) or [])
            elif refused:
                self.add(line, f"{name} is refused", lambda: self.refuse(name, content, expected[2]))
            else:
                self.add(line, name, lambda: self.compile(name, content))
        elif kind == "cpp" and "int main" in content:
            self.add(line, "program", lambda: ["a program's first line must be its name, such as `// train.cpp`"])
        elif kind == "meson":
            self.add(line, "meson.build", lambda: self.subproject(content))
        elif kind == "sh":
            commands = "; ".join(content.split("\n")[:-1])
            self.add(line, commands[:60] + "..." * (len(commands) > 60), lambda: self.commands(content, expected))

    def flags(self):
        status, output = run("pkg-config --cflags --libs fathom", ROOT, self.installed.environment())
        if status:
            raise RuntimeError(output)
        return output.split()

    def compile(self, name, content):
        """Compiles a file of the page by the page's own command; the program is kept."""
        source = os.path.join(self.kept, name)
        write_if_new(source, content)
        words = re.sub(r"\$\(.*?\)", "", self.compiling).replace("-O3", "-O1").split()[1:]
        words = [word for word in words if word.startswith("-") and word != "-o"]
        program = source.removesuffix(".cpp")
        libraries = [word for word in words if word.startswith("-l")]  # after what needs them
        command = [self.options.compiler, *words, *WARNINGS, source, "-o", program, "-MD", "-MF", program + ".d",
                   *self.flags(), *libraries]
        key = hashlib.sha256(repr(command).encode()).hexdigest()
        if not self.is_new(program, key):
            done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace",
                                  env={**os.environ, "LC_ALL": "C"})
            if done.returncode:
                return done.stderr.splitlines()[:40]
            write_if_new(program + ".key", key)
        shutil.copy(program, self.folder)
        return []

    @staticmethod
    def is_new(program, key):
        """Whether a program is there that this command made of files that have not changed since."""
        try:
            if open(program + ".key", encoding="utf-8").read() != key:
                return False
            files = open(program + ".d", encoding="utf-8").read().replace("\\\n", " ").split()[1:]
            made = os.stat(program).st_mtime_ns
            return all(os.stat(file).st_mtime_ns <= made for file in files)
        except OSError:
            return False

    def refuse(self, name, content, expected):
        source = os.path.join(self.kept, name)
        write_if_new(source, content)
        done = subprocess.run([self.options.compiler, "-std=c++20", "-fsyntax-only", *self.flags(), name],
                              cwd=self.kept, capture_output=True, encoding="utf-8", errors="replace",
                              env={**os.environ, "LC_ALL": "C"})
        if not done.returncode:
            return ["it compiles"]
        ours = [line for line in done.stderr.splitlines() if "error:" in line]
        said = [re.sub(r"^\S*/include/", "", line) for line in ours]
        # Lines and columns of our headers move; the page leaves them out.
        said = [re.sub(r"^([\w/.]+):\d+:\d+: ", r"\1: ", line) for line in said]
        want = " ".join(expected.split())
        return [] if [" ".join(line.split()) for line in said] == [want] else ["it says:", *said, "expected:", want]

    def commands(self, content, expected):
        output = ""
        for line in content.splitlines():
            line = line.split("  #")[0].strip()
            if not line:
                continue
            if line.startswith("c++ "):
                # Its program was compiled when the page showed it; the line must name that one.
                name = re.search(r"(\w+)\.cpp", line).group(1)
                if f"-o {name} " not in line + " " or "$(pkg-config --cflags --libs fathom)" not in line:
                    return [f"expected a line that makes {name} of {name}.cpp by pkg-config, found: {line}"]
                continue
            shorter = self.shortened(line)
            status, said = run(shorter, self.folder)
            if status:
                return [f"exit status {status} of: {shorter}", *said.splitlines()[-40:]]
            output += said
        return differences(expected[2], output, expected[1]) if expected else []

    def shortened(self, line):
        """A command as short as it can be: three steps on a small text, or one test in a copy of the sources."""
        if line.startswith("./dev train"):
            build = os.path.join(ROOT, "build")
            here = os.path.samefile(build, self.options.build) if os.path.exists(build) else False
            program = f"'{ROOT}/dev' train" if here else f"'{self.options.build}/examples/pretrain'"
            return f"{program} --data /usr/include/c++/*/bits/stl_*.h --steps 3 --sample-tokens 4 --set workers=2"
        if line.startswith("./trainer"):
            return f"{line} training_steps=3 warmup_steps=1"
        if line.startswith("./dev test"):
            copy = os.path.join(self.folder, "copy")
            shutil.copytree(ROOT, copy, ignore=COPIED)
            # What the test finds is its own business; here the question is whether the command works.
            counted = "grep -E '^[1-9][0-9]* passed, [0-9]+ failed$'"
            return f"cd '{copy}'; {{ ./dev test house || true; }} | tail -n 1 | {counted}"
        return line

    def subproject(self, content):
        """Builds a project of that meson.build and the page's programs, with Fathom below subprojects/."""
        project = os.path.join(self.folder, "project")
        shutil.rmtree(project, ignore_errors=True)
        os.makedirs(os.path.join(project, "subprojects"))
        for name in os.listdir(self.kept):
            if name.endswith((".cpp", ".hpp")):
                shutil.copy(os.path.join(self.kept, name), project)
        os.symlink(ROOT, os.path.join(project, "subprojects", "fathom"))
        write_if_new(os.path.join(project, "meson.build"), content)
        # Without optimization: what is asked is whether it finds everything.
        status, output = run("meson setup build --buildtype=plain && ninja -C build", project)
        return output.splitlines()[-40:] if status else []


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("build", help="the build folder, which is installed from")
    options.add_argument("--compiler", default="g++", help="the compiler to use (default: %(default)s)")
    options.add_argument("--cache", required=True, help="folder to work in; programs are kept there")
    options.add_argument("pages", nargs="*", metavar="PAGE", help="only these, such as docs/tutorial.md")
    options = options.parse_intermixed_args()
    options.cache = os.path.abspath(options.cache)
    options.compiler = shutil.which(options.compiler) or options.compiler
    todo = checks(None)
    if not shutil.which("pkg-config"):
        todo.skip("documentation", "no pkg-config here")
        todo.run()
    installed = installation(os.path.abspath(options.build), os.path.join(options.cache, "installed"))
    for path in options.pages or PAGES:
        if path in NEEDS and run(f"echo '#include <{NEEDS[path]}>' | {options.compiler} -E -x c++ -", ROOT)[0]:
            todo.skip(path, f"no {NEEDS[path]} here")
        else:
            page(path, todo, installed, options)
    todo.run()


main()
