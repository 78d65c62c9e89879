"""The longest mangled symbol of ours in the given programs has at most 512 characters, so that people can read what a
profiler and a linker print. Usage: symbols.py PROGRAM..."""
import subprocess
import sys

MOST = 512


def main():
    longest = {}
    for program in sys.argv[1:]:
        printed = subprocess.run(["nm", "-P", program], capture_output=True, text=True, check=True).stdout
        for line in printed.splitlines():
            symbol = line.split(" ", 1)[0]
            if "6fathom" in symbol and len(symbol) > len(longest.get(program, "")):
                longest[program] = symbol
    print(f"1..{len(sys.argv) - 1}")
    for number, program in enumerate(sys.argv[1:], 1):
        symbol = longest.get(program, "")
        name = "/".join(program.split("/")[-2:])
        print(f"{'ok' if len(symbol) <= MOST else 'not ok'} {number} - {name}: longest symbol {len(symbol)} of {MOST}")
        if len(symbol) > MOST:
            readable = subprocess.run(["c++filt", symbol], capture_output=True, text=True, check=False).stdout.strip()
            print(f"# {symbol[:1000]}\n# {readable[:2000]}")


main()
