"""Runs checks in parallel and prints them in TAP, one line each; remembers which passed and what they depended on.

A check is a function that returns (failures, dependencies): lines that say what is wrong, and the files that it read.
When it passed and none of these files has changed since, it is not run again.
"""
import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time

WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wno-sign-conversion", "-Werror"]


def compile_source(command, source, *, text=None):
    """Runs a compiler on a file, or on the text `text`. Returns (status, output, dependencies)."""
    with tempfile.NamedTemporaryFile(suffix=".d") as listing:
        done = subprocess.run([*command, "-MD", "-MF", listing.name, "-MT", "x", "-x", "c++", "-" if text else source],
                              input=text, capture_output=True, encoding="utf-8", errors="replace",
                              env={**os.environ, "LC_ALL": "C", "CCACHE_DISABLE": "1"})
        files = open(listing.name, encoding="utf-8").read().replace("\\\n", " ").split()[1:]
    return done.returncode, done.stdout + done.stderr, [file for file in files if file != "-"]


class checks:
    """Collects checks by name, then runs them all."""

    def __init__(self, cache):
        self.cache, self.entries = cache, []
        if cache:
            os.makedirs(cache, exist_ok=True)

    def add(self, name, check, *key):
        """A check; `key` is what its result depends on besides files, such as the command line."""
        self.entries.append((name, check, key))

    def skip(self, name, why):
        self.entries.append((f"{name} # SKIP {why}", None, ()))

    def run(self):
        """Prints one line a check in order and exits with 1 if any failed."""
        failed = 0
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            results = [check and pool.submit(self._once, name, check, key) for name, check, key in self.entries]
            for number, ((name, _, _), result) in enumerate(zip(self.entries, results), 1):
                if result is None:
                    print(f"ok {number} - {name}", flush=True)
                    continue
                failures, note, seconds = result.result()
                failed += bool(failures)
                print(f"{'not ok' if failures else 'ok'} {number} - {name}{note} [{seconds:.3f} s]", flush=True)
                for line in failures:
                    print(f"# {line}")
        print(f"1..{len(self.entries)}")
        sys.exit(bool(failed))

    def _once(self, name, check, key):
        start = time.monotonic()
        path = self.cache and os.path.join(self.cache, hashlib.sha256(repr((name, key)).encode()).hexdigest()[:24])
        if path and self._unchanged(path):
            return [], " (unchanged since it passed)", time.monotonic() - start
        try:
            failures, files = check()
        except Exception as error:  # a check that breaks has found something wrong
            failures, files = [f"{type(error).__name__}: {error}"], []
        if path and not failures and files:
            with open(path + ".new", "w", encoding="utf-8") as stamp:
                json.dump({file: self._state(file) for file in {*files, __file__, sys.argv[0]}}, stamp)
            os.replace(path + ".new", path)
        return failures, "", time.monotonic() - start

    @staticmethod
    def _state(file):
        seen = os.stat(file)
        return [seen.st_mtime_ns, seen.st_size]

    def _unchanged(self, path):
        try:
            with open(path, encoding="utf-8") as stamp:
                return all(self._state(file) == state for file, state in json.load(stamp).items())
        except (OSError, ValueError):
            return False
