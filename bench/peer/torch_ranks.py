#!/usr/bin/env python3
"""Times training steps of PyTorch's DistributedDataParallel: processes of one thread over gloo, each with its part of
the batch. The options and the JSON line of torch_step.py, and --ranks."""

import argparse, json, os, statistics, tempfile, time


def rank_main(rank, args, meeting):
    import torch
    from models import SHAPE, build, optimizer, peak_rss_mib, step

    torch.set_num_threads(args.threads)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=args.ranks
    )
    model = build(args.config, args.attention, args.experts)
    parameters, adamw = list(model.parameters()), optimizer(model)
    forward = torch.nn.parallel.DistributedDataParallel(
        model, find_unused_parameters=args.experts == "eager", gradient_as_bucket_view=True
    )
    draw = torch.Generator().manual_seed(1)
    batches = [torch.randint(0, model.config.vocab_size, SHAPE[args.config], generator=draw) for _ in range(4)]
    parts = [batch.chunk(args.ranks)[rank] for batch in batches]
    seconds, losses = [], []
    for i in range(args.warmup + args.steps):
        since = time.perf_counter()
        losses.append(step(forward, parameters, adamw, parts[i % 4]).item())
        if i >= args.warmup:
            seconds.append(time.perf_counter() - since)
    if rank == 0:
        tokens, median = batches[0].numel(), statistics.median(seconds)
        facts = dict(config=args.config, ranks=args.ranks, threads=args.ranks * args.threads, tokens=tokens)
        facts |= dict(steps=args.steps, min_s=min(seconds), med_s=median, tok_s_best=tokens / min(seconds))
        facts |= dict(tok_s_med=tokens / median, peak_rss_mib=peak_rss_mib(), first_loss=losses[0])
        facts |= dict(parameters=sum(p.numel() for p in parameters))
        print(json.dumps(facts), flush=True)
    torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="S", choices=["S", "M"])
    parser.add_argument("--attention", default="sdpa", choices=["eager", "sdpa"])
    parser.add_argument("--experts", choices=["eager", "grouped_mm"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=3)
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(args.threads)
    import torch.multiprocessing

    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_main, (args, os.path.join(folder, "meeting")), args.ranks)


if __name__ == "__main__":
    main()
