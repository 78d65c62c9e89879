"""Prints what a run of `meson test` found: failures, the ten slowest tests, and `N passed, N failed` as the last line.

Every test program speaks TAP: one line for each test case, refusal, header or rule, and each counts as one. A program
that crashes, stops early or runs no test counts as one failure. Usage: test_report.py BUILD
"""
import json
import os
import re
import sys

LINE = re.compile(r"(not )?ok \d+ - (.*?)(?: \[([\d.]+) s\])?( # SKIP.*)?$")


def read(path):
    """The (seconds, name, details) of what passed and what failed."""
    passed, failed = [], []
    with open(path, encoding="utf-8", errors="replace") as log:
        for program in map(json.loads, log):
            lines = program.get("stdout", "").splitlines()
            counted = skipped = broken = 0
            for number, line in enumerate(lines):
                if not (match := LINE.match(line)):
                    continue
                is_broken, name, seconds, skip = match.groups()
                if skip:
                    skipped += 1
                    continue
                counted += 1
                details = []
                for following in lines[number + 1:]:
                    if not following.startswith("#"):
                        break
                    details.append(following[2:])
                broken += bool(is_broken)
                (failed if is_broken else passed).append((float(seconds or 0), f"{program['name']}: {name}", details))
            why = None
            if program["result"] not in ("OK", "SKIP"):
                why = f"ended with {program['result']}, exit status {program.get('returncode')}"
            elif not counted + skipped:
                why = "ran no test"
            elif f"1..{counted + skipped}" not in lines:
                why = "stopped before its end"
            if why and not broken:
                end = (lines + program.get("stderr", "").splitlines())[-40:]
                failed.append((0.0, f"{program['name']}: {why}", end))
    return passed, failed


def main(build):
    path = os.path.join(build, "meson-logs", "testlog.json")
    passed, failed = read(path) if os.path.exists(path) else ([], [])
    if not passed and not failed:
        failed.append((0.0, "no test ran at all", []))
    for _, name, details in failed:
        print(f"\nFAILED  {name}")
        print("".join(f"    {line}\n" for line in details if line.strip(" =")), end="")
    print("\nslowest:")
    for seconds, name, _ in sorted(passed + failed, reverse=True)[:10]:
        print(f"{seconds:9.3f} s  {name}")
    print(f"{len(passed)} passed, {len(failed)} failed")
    return bool(failed)


sys.exit(main(sys.argv[1]))
