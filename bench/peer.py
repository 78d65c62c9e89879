#!/usr/bin/env python3
"""Our training step against PyTorch's on the same configurations, in turn; exit status 1 when a target is missed.

Every variant of PyTorch is tried first, which also fills the compiler's cache; the fastest then runs in pairs with
bench/step, fresh processes on both sides and the order changing from pair to pair, because machines drift. A ratio
is the median of the pairs' ratios. Memory is held against the variant that needs least.

With --ranks N: so many ranks of one worker each against one rank with as many workers, and against PyTorch's processes
(DistributedDataParallel over gloo). Data parallelism has targets; pipeline and tensor parallelism stand beside it.
"""

import argparse, json, os, platform, shutil, statistics, subprocess, sys, time

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer")
sys.path.insert(0, HERE)
from environment import python_of  # noqa: E402

SPEED = {"S": 2.0, "M": 1.6, "L": 1.25}  # tokens/s, ours over PyTorch's
BF16, MEMORY, START, PEAK = 0.8, 1 / 3, 1 / 20, {"M": 0.65}
RANKS, RANKS_PEER = 0.95, 2.0  # tokens/s of data parallel ranks over those of one rank, and over PyTorch's
STATE = 16 / 2**20  # MiB a parameter: weight, gradient and two moments in fp32
STEPS = {"S": (12, 3), "M": (5, 2), "L": (6, 2)}  # timed steps of a run, steps before them
FIRST = [
    ("eager", "eager", False),
    ("sdpa", "eager", False),
    ("eager", "grouped_mm", False),
    ("sdpa", "grouped_mm", False),
    ("eager", "grouped_mm", True),
    ("sdpa", "grouped_mm", True),
]
VARIANTS = {"S": FIRST, "M": FIRST, "L": [("eager", None, False), ("sdpa", None, False), ("sdpa", None, True)]}


def label(variant):
    attention, experts, compiled = variant
    return attention + (f", experts {experts}" if experts else "") + (", compiled" if compiled else "")


def progress(text=""):
    """One line that the next one replaces, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


class Bench:
    def __init__(self, args):
        self.args, self.rows, self.runs = args, [], []
        self.build = os.path.abspath(args.build)
        name = "step" if args.ranks == 1 else "ranks"
        if os.path.exists(os.path.join(self.build, "build.ninja")):
            ninja = shutil.which("ninja") or shutil.which("ninja-build") or "ninja"
            done = subprocess.run([ninja, "-C", self.build, f"bench/{name}"], stdout=subprocess.PIPE, text=True)
            if done.returncode:
                raise SystemExit(f"{done.stdout}bench/{name} does not build")
        self.program = os.path.join(self.build, "bench", name)
        if not os.access(self.program, os.X_OK):
            raise SystemExit(f"{self.program} is missing: build it with ./dev build")
        self.python = python_of(self.build)
        self.environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(args.threads if args.ranks == 1 else 1),
            "MKL_NUM_THREADS": str(args.threads if args.ranks == 1 else 1),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "CXX": os.environ.get("CXX", "g++"),
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(self.build, "peer-cache"),
            "TRITON_CACHE_DIR": os.path.join(self.build, "peer-cache"),
        }

    def output(self, command):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr[-2000:]}")
        return done.stdout

    def run(self, command, **facts):
        text = self.output(command)
        try:
            out = json.loads(text.strip().splitlines()[-1])
        except (ValueError, IndexError):
            raise RuntimeError(f"{' '.join(command)} printed no JSON line but: {text[-500:]!r}") from None
        self.runs.append({**facts, **out})
        return out

    def steps(self, config, few=False):
        steps, warmup = STEPS[config]
        steps = max(3, steps // 2) if self.args.quick or few else steps
        threads = f"--threads {self.args.threads}" if self.args.ranks == 1 else ""
        return f"--config {config} {threads} --steps {steps} --warmup {warmup}".split()

    def ours_on_ranks(self, config, layout):
        """A layout on all ranks; `one` is one rank with as many workers."""
        n = self.args.ranks
        shape = f"--layout dp --ranks 1 --workers {n}" if layout == "one" else f"--layout {layout} --ranks {n}"
        return self.run([self.program, *self.steps(config), *shape.split()], side="ours", layout=layout)

    def ours(self, config, dtype):
        peak = [] if dtype == "fp32" else ["--no-peak"]
        return self.run([self.program, *self.steps(config), "--dtype", dtype, *peak], side="ours")

    def peer(self, config, variant, few=False):
        attention, experts, compiled = variant
        script = os.path.join(HERE, "torch_step.py" if self.args.ranks == 1 else "torch_ranks.py")
        command = [self.python, script, *self.steps(config, few), "--attention", attention]
        command += ["--ranks", str(self.args.ranks)] if self.args.ranks > 1 else []
        command += ["--experts", experts] if experts else []
        command += ["--compile"] if compiled else []
        return self.run(command, side="PyTorch", variant=label(variant))

    def row(self, config, what, ours, against, values, target, at_least=True, form="{:.0f}"):
        """One line of the table; values are those of the pairs, their median is held against the target."""
        middle = statistics.median(values)
        passed = target is None or (middle >= target if at_least else middle <= target)
        line = dict(config=config, what=what, ours=ours, against=against, ratio=middle, lowest=min(values))
        self.rows.append({**line, "highest": max(values), "target": target, "at_least": at_least, "passed": passed})
        bound = "" if target is None else f"{'>=' if at_least else '<='} {target:.3g}"
        verdict = "" if target is None else "ok" if passed else "MISSED"
        print(
            f"{config:2} {what:51} {form.format(ours):>9} {form.format(against):>9} {middle:8.3f} "
            f"{min(values):7.3f}-{max(values):<7.3f} {bound:>9}  {verdict}",
            flush=True,
        )

    def find_best(self, config):
        """Runs every variant in turn, twice; returns the fastest and the smallest peak memory of all."""
        speed, memory, trouble = {}, [], []
        for _ in range(1 if self.args.quick else 2):
            for variant in [v for v in VARIANTS[config] if self.args.ranks == 1 or not v[2]]:
                progress(f"{config}: trying PyTorch {label(variant)}")
                try:
                    out = self.peer(config, variant, few=True)
                except RuntimeError as e:
                    trouble.append(f"{label(variant)}: {str(e).strip().splitlines()[-1]}")
                    continue
                speed.setdefault(variant, []).append(out["tok_s_med"])
                memory.append(out["peak_rss_mib"])
        progress()
        if not speed:
            raise SystemExit(f"no variant of PyTorch ran at {config}:\n{trouble[0]}")
        for variant, seen in sorted(speed.items(), key=lambda v: -max(v[1])):
            print(f"   {config} PyTorch {label(variant):32} {max(seen):7.0f} tokens/s")
        for t in trouble:
            print(f"   {config} left out: {t}")
        return max(speed, key=lambda v: max(speed[v])), min(memory)

    def compare(self, config):
        variant, memory = self.find_best(config)
        fp32, bf16, torch = [], [], []
        for pair in range(self.args.pairs):
            progress(f"{config}: pair {pair + 1} of {self.args.pairs}")
            turns = [
                lambda: fp32.append(self.ours(config, "fp32")),
                lambda: torch.append(self.peer(config, variant)),
                lambda: bf16.append(self.ours(config, "bf16")),
            ]
            for turn in turns if pair % 2 == 0 else reversed(turns):
                turn()
            if pair == 0:
                self.same_work(config, fp32[0], torch[0])
        progress()
        memory = min(memory, *(r["peak_rss_mib"] for r in torch))
        middle = lambda runs, key: statistics.median(r[key] for r in runs)
        ratios = lambda a, b, key: [x[key] / y[key] for x, y in zip(a, b)]
        speed, peer_speed = middle(fp32, "tok_s_med"), middle(torch, "tok_s_med")
        gained = ratios(fp32, torch, "tok_s_med")
        self.row(config, "tokens/s, PyTorch's", speed, peer_speed, gained, SPEED[config])
        kept = ratios(bf16, fp32, "tok_s_med")
        self.row(config, "tokens/s in bf16, our fp32", middle(bf16, "tok_s_med"), speed, kept, BF16)
        state = 0 if config == "S" else STATE
        beyond = lambda r: r["peak_rss_mib"] - r["parameters"] * state
        what = "peak MiB, PyTorch's" + (", both beyond 16 B a parameter" if state else "")
        least = memory - torch[0]["parameters"] * state
        self.row(
            config, what, statistics.median(map(beyond, fp32)), least, [beyond(r) / least for r in fp32], MEMORY, False
        )
        rate = [r["model_gflops_per_step"] / r["med_s"] for r in fp32]
        used = [x / r["sgemm_peak_gflops"] for x, r in zip(rate, fp32)]
        peak = middle(fp32, "sgemm_peak_gflops")
        self.row(config, "model GFLOP/s, our sgemm peak", statistics.median(rate), peak, used, PEAK.get(config))

    def compare_ranks(self, config):
        variant, _ = self.find_best(config)
        layouts = ["dp", "one", "tp"] + (["pp"] if self.args.ranks == 2 else [])
        seen = {kind: [] for kind in [*layouts, "PyTorch"]}
        for pair in range(self.args.pairs):
            progress(f"{config}: pair {pair + 1} of {self.args.pairs}")
            for kind in seen if pair % 2 == 0 else reversed(seen):
                run = self.peer(config, variant) if kind == "PyTorch" else self.ours_on_ranks(config, kind)
                seen[kind].append(run)
            if pair == 0:
                for layout in layouts:
                    self.same_work(config, seen[layout][0], seen["one"][0])
                self.same_work(config, seen["dp"][0], seen["PyTorch"][0], 0.05)  # its loss is that of its part
        progress()
        rates = {kind: [r["tok_s_med"] for r in runs] for kind, runs in seen.items()}
        n, middle = self.args.ranks, statistics.median
        for layout, other, what, target in [
            ("dp", "one", f"tokens/s of dp {n}, one rank of {n} workers", RANKS),
            ("dp", "PyTorch", f"tokens/s of dp {n}, PyTorch's {n} processes", RANKS_PEER),
            *((layout, "one", f"tokens/s of {layout} {n}, one rank of {n} workers", None) for layout in layouts[2:]),
        ]:
            ratios = [a / b for a, b in zip(rates[layout], rates[other])]
            self.row(config, what, middle(rates[layout]), middle(rates[other]), ratios, target)

    def same_work(self, config, ours, theirs, margin_of_loss=0.02):
        """Router biases count as parameters on one side only, and the weights are other draws: hence the margins."""
        for key, margin in (("tokens", 0), ("threads", 0), ("parameters", 1e-3), ("first_loss", margin_of_loss)):
            if not abs(ours[key] - theirs[key]) <= margin * theirs[key]:
                raise SystemExit(f"{config}: not the same work: {key} is {ours[key]}, PyTorch's {theirs[key]}")

    def start_up(self):
        """Our whole process against PyTorch's start to the end of its first step; the first pair warms file caches."""
        seconds = {"ours": [], "PyTorch": []}
        for pair in range(self.args.pairs + 1):
            for side in list(seconds) if pair % 2 == 0 else reversed(list(seconds)):
                since = time.time()
                if side == "ours":
                    options = f"--config T --dtype fp32 --threads {self.args.threads} --steps 1 --warmup 0 --no-peak"
                    self.run([self.program, *options.split()], side=side)
                    took = time.time() - since
                else:
                    took = float(self.output([self.python, os.path.join(HERE, "torch_start.py")]).split()[0]) - since
                if pair:
                    seconds[side].append(took)
        ours, theirs = seconds.values()
        ratios = [a / b for a, b in zip(ours, theirs)]
        middle = statistics.median
        self.row(
            "T", "seconds to first step's end, PyTorch's", middle(ours), middle(theirs), ratios, START, False, "{:.3f}"
        )


def processor():
    try:
        with open("/proc/cpuinfo") as f:
            return next(line.split(":")[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="the build folder; PyTorch is installed in it, in peer-venv")
    parser.add_argument("--configs", help="which of T (start-up), S, M, L (default: all; on several ranks S, M)")
    parser.add_argument("--pairs", type=int, default=7, help="pairs of runs at each configuration (default 7)")
    parser.add_argument("--threads", type=int, default=2, help="threads of both sides (default 2)")
    parser.add_argument("--ranks", type=int, default=1, help="ranks of one worker each (default 1: see above)")
    parser.add_argument("--quick", action="store_true", help="3 pairs, half the steps, variants tried once")
    parser.add_argument("--json", metavar="FILE", help="write results and all runs")
    args = parser.parse_args()
    if args.quick:
        args.pairs = min(args.pairs, 3)
    known = "TSML" if args.ranks == 1 else "SM"
    configs = args.configs.split(",") if args.configs else list(known)
    if args.pairs < 1 or args.ranks < 1 or not set(configs) <= set(known):
        parser.error(f"--pairs and --ranks need at least 1, --configs names of {', '.join(known)}")
    args.threads = args.threads if args.ranks == 1 else args.ranks
    bench = Bench(args)
    print(f"{processor()}, {args.threads} threads, {args.pairs} pairs")
    print(f"{'':2} {'ours, against':51} {'ours':>9} {'against':>9} {'ratio':>8} {'range':^15} {'target':>9}")
    try:
        for config in configs:
            compare = bench.compare if args.ranks == 1 else bench.compare_ranks
            bench.start_up() if config == "T" else compare(config)
    except RuntimeError as e:
        raise SystemExit(str(e)) from None
    if args.json:
        with open(args.json, "w") as f:
            facts = {"processor": processor(), "threads": args.threads, "pairs": args.pairs}
            json.dump({**facts, "results": bench.rows, "runs": bench.runs}, f, indent=1)
    missed = sum(not r["passed"] for r in bench.rows)
    print(f"{len(bench.rows) - missed} of {len(bench.rows)} as wanted")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
