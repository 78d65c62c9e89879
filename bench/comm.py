#!/usr/bin/env python3
"""Operations between ranks, on threads and over MPI, against the plain MPI call and a copy of as many bytes.

All four are timed in turn in one program (bench/comm/mpi/measure.cpp), again and again, and the best of each counts: a
machine that does something else makes any of them slower and none faster. Exit status 1 when a target is missed.
"""

import argparse, json, os, shutil, subprocess, sys

KIB, MIB = 2**10, 2**20
# From so many bytes on, our speed must at least be this share of the other's; up to the next line's bytes.
TARGETS = {
    ("threads", "plain"): [(0, 0.5), (256 * KIB, 1.0)],  # a copy less; small ones are a matter of waking up
    ("threads", "copy"): [(64 * MIB, 0.5)],  # below, a copy stays in a cache and ours comes from another core's
    ("mpi", "plain"): [(0, 0.3), (256 * KIB, 0.5), (4 * MIB, 0.8)],  # ranks introduce themselves first
}


def size(number):
    return f"{number // MIB} MiB" if number >= MIB else f"{number // KIB} KiB" if number else "-"


def target_of(pair, number):
    found = [share for least, share in TARGETS[pair] if number >= least]
    return found[-1] if found else None


def measured(command):
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job:
        for line in job.stdout:
            yield json.loads(line)
    if job.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {job.returncode}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="the build folder")
    parser.add_argument("--ranks", type=int, default=2, help="ranks (2)")
    parser.add_argument("--rounds", type=int, default=7, help="how often each is timed (7)")
    parser.add_argument("--json", metavar="FILE", help="write all times")
    args = parser.parse_args()
    ninja = shutil.which("ninja") or shutil.which("ninja-build") or "ninja"
    target = "bench/comm_mpi_measure"
    done = subprocess.run([ninja, "-C", args.build, target], stdout=subprocess.PIPE, text=True)
    if done.returncode or not shutil.which("mpirun"):
        raise SystemExit(f"{done.stdout}{target} needs MPI: Debian's libopenmpi-dev and openmpi-bin")
    command = ["mpirun", "-n", str(args.ranks), os.path.join(args.build, target), str(args.rounds)]

    print(f"{args.ranks} ranks, best of {args.rounds}; load of this machine: {os.getloadavg()[0]:.1f}")
    print(f"{'':14} {'':8} {'microseconds a call':^39}  {'our speed over the other':^44}")
    times, ratios = ("threads", "copy", "MPI", "plain MPI"), ("threads/plain", "threads/copy", "MPI/plain")
    heads = "".join(f"{name:>10}" for name in times) + "".join(f"{name:>15}" for name in ratios)
    print(f"{'operation':14} {'bytes':>8} {heads}")
    rows, missed = [], 0
    for row in measured(command):
        best = {kind: min(row[kind]) for kind in ("threads", "copy", "mpi", "plain")}
        if not row["bytes"]:
            best["copy"] = None
        text = f"{row['operation']:14} {size(row['bytes']):>8} "
        text += "".join(f"{'-':>10}" if t is None else f"{1e6 * t:10.1f}" for t in best.values())
        row["ratios"] = {}
        for pair in TARGETS:
            ours, other = best[pair[0]], best[pair[1]]
            share = target_of(pair, row["bytes"])
            if other is None:
                text += f"{'-':>15}"
                continue
            row["ratios"]["/".join(pair)] = {"ratio": other / ours, "target": share}
            short = share is not None and other / ours < share
            missed += short
            text += f"{other / ours:8.2f} " + (f"{'<' if short else '>'}{share:4.2f}" if share else "").rjust(6)
        print(text, flush=True)
        rows.append(row)
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"ranks": args.ranks, "rounds": args.rounds, "results": rows}, file, indent=1)
    print("every target is met" if not missed else f"{missed} targets missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
