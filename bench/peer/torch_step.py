#!/usr/bin/env python3
"""Times training steps of PyTorch: the options and the JSON line of bench/step, with a choice of variants."""

import argparse, json, os, statistics, time

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--config", default="S", choices=["T", "S", "M", "L"])
parser.add_argument("--attention", default="sdpa", choices=["eager", "sdpa"])
parser.add_argument("--experts", choices=["eager", "grouped_mm"])
parser.add_argument("--compile", action="store_true")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--warmup", type=int, default=3)
args = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(args.threads)

import torch  # noqa: E402
from models import SHAPE, build, optimizer, peak_rss_mib, step  # noqa: E402

torch.set_num_threads(args.threads)
model = build(args.config, args.attention, args.experts)
parameters, adamw = list(model.parameters()), optimizer(model)
forward = torch.compile(model) if args.compile else model
draw = torch.Generator().manual_seed(1)
batches = [torch.randint(0, model.config.vocab_size, SHAPE[args.config], generator=draw) for _ in range(4)]
seconds, losses = [], []
for i in range(args.warmup + args.steps):
    since = time.perf_counter()
    losses.append(step(forward, parameters, adamw, batches[i % 4]).item())
    if i >= args.warmup:
        seconds.append(time.perf_counter() - since)
tokens, median = batches[0].numel(), statistics.median(seconds)
print(
    json.dumps(
        {
            "config": args.config,
            "dtype": "fp32",
            "threads": args.threads,
            "tokens": tokens,
            "steps": args.steps,
            "min_s": min(seconds),
            "med_s": median,
            "tok_s_best": tokens / min(seconds),
            "tok_s_med": tokens / median,
            "peak_rss_mib": peak_rss_mib(),
            "parameters": sum(p.numel() for p in parameters),
            "first_loss": losses[0],
            "last_loss": losses[-1],
        }
    )
)
