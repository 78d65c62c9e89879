#!/usr/bin/env python3
"""Write the reference cases beside this file, or with --check compare the stored ones with a fresh NumPy run.

Writing needs PyTorch (bench/peer/requirements.txt), for gradients; they are compared with central differences of the
NumPy forward pass, and the PyTorch model with the stored transformers case v3_mtp. --check needs NumPy alone. Two runs
give the same bytes but for last digits, which depend on the machine's instructions.
"""

import argparse, hashlib, json, os
import numpy as np
from reference import (
    AdamW,
    Reference,
    learning_rate,
    load,
    multi_step_phases,
    phase,
    save,
    update_bias,
    v3_phases,
    wsd_phases,
)

HERE = os.path.dirname(os.path.abspath(__file__))
ORACLE = os.path.join(HERE, "..", "oracle")
BATCH, LENGTH, BATCHES = 2, 12, 4
DEPTH_2 = {"num_nextn_predict_layers": 2, "mtp_lambda": 0.3}
# name: (oracle case whose shapes it has, extra keys)
CASES = {
    "v3_balance": ("v3_plain", {"seq_aux_alpha": 0.05}),
    "v3_z_loss": ("v3_plain", {"z_loss": 0.01}),
    "v3_mtp2": ("v3_mtp", DEPTH_2),
    "v3_all": ("v3_mtp", {**DEPTH_2, "seq_aux_alpha": 0.05, "z_loss": 0.01}),
}
TRAJECTORY = {
    "base": "v3_all",
    "steps": 12,
    "bias_update_speed": 0.02,
    "phases": [phase("linear", 4, 1e-3), phase("cosine", 8, 1e-4)],
}


def random(name, attempt=0):
    return np.random.default_rng(int.from_bytes(hashlib.sha256(f"{name} {attempt}".encode()).digest()[:8], "little"))


def folder(name):
    os.makedirs(os.path.join(HERE, name), exist_ok=True)
    return os.path.join(HERE, name)


def write_json(name, file, what):
    with open(os.path.join(folder(name), file), "w") as f:
        json.dump(what, f, indent=1, sort_keys=True)
        f.write("\n")


def make_config(base, extra):
    config = json.load(open(os.path.join(ORACLE, base, "config.json")))
    return {**config, "num_nextn_predict_layers": 0, **extra}


def make_weights(config, base, rng):
    """Every tensor gets values that matter, in the shapes of the oracle's checkpoint; MTP layers repeat the first."""
    shapes = {n: t.shape for n, t in load(os.path.join(ORACLE, base, "model.safetensors")).items()}
    L, depths = config["num_hidden_layers"], config["num_nextn_predict_layers"]
    first = f"model.layers.{L}."
    for k in range(1, depths):
        shapes.update(
            {n.replace(first, f"model.layers.{L + k}."): s for n, s in list(shapes.items()) if n.startswith(first)}
        )
    w = {}
    for n, s in sorted(shapes.items()):
        scale = (
            0.2
            if "norm" in n
            else 0.25
            if n.endswith("bias")
            else 0.35
            if n.endswith("gate.weight")
            else 0.6
            if "embed" in n
            else 1.1 / s[-1] ** 0.5
        )
        w[n] = (rng.standard_normal(s) * scale + ("norm" in n)).astype(np.float32)
    for k in range(depths):  # copies, as DeepSeek's checkpoints have them
        w[f"model.layers.{L + k}.embed_tokens.weight"] = w["model.embed_tokens.weight"]
        w[f"model.layers.{L + k}.shared_head.head.weight"] = w["lm_head.weight"]
    return w


def double(w):
    return {n: t.astype(np.float64) for n, t in w.items()}


def draw(config, rng, shape):
    ids = rng.integers(3, config["vocab_size"], shape)
    labels = ids.copy()
    labels[0, :3] = -100
    return ids, labels


def same(what, got, expected, limit):
    worst = float(np.max(np.abs(np.asarray(got) - expected)))
    if not worst <= limit:
        raise SystemExit(f"{what}: differs by {worst:.3g}, allowed {limit:.3g}")


def central_differences(net, ids, labels, grads, rng, each=2, h=1e-5):
    """A few entries of every gradient. Slices of a tensor share their top-k choices: the cases keep clear of ties."""
    for n, g in grads.items():
        w = net.w[n]
        for flat in rng.choice(w.size, min(each, w.size), replace=False):
            i = np.unravel_index(flat, w.shape)
            was = w[i]
            w[i] = was + h
            up = net.losses(ids, labels)["loss"]
            w[i] = was - h
            down = net.losses(ids, labels)["loss"]
            w[i] = was
            same(f"gradient of {n} at {i}", g[i], (up - down) / (2 * h), 2e-8)


def seen(net, terms):
    """What a case stores of the NumPy run: the terms, what routers and extra terms saw, the logits."""
    keep = {
        k: v
        for k, v in net.h.items()
        if k.startswith(("router.", "balance.", "mtp.")) or k in ("logits", "hidden.final_norm")
    }
    return {**keep, **{k: np.array([v]) for k, v in terms.items()}}


def make_case(name, base, extra):
    from torch_model import gradients

    config = make_config(base, extra)
    for attempt in range(400):  # the first draw without near-ties in any choice
        rng = random(name, attempt)
        w = make_weights(config, base, rng)
        ids, labels = draw(config, rng, (BATCH, LENGTH))
        net = Reference(config, double(w))
        terms = net.losses(ids, labels)
        if min(net.gaps.values()) >= 5e-4:
            break
    else:
        raise SystemExit(f"{name}: no draw without near-ties")
    io = {"input_ids": ids, "labels": labels, **seen(net, terms)}
    torch_terms, grads = gradients(config, net.w, ids, labels)
    for k, v in torch_terms.items():
        same(f"{name} {k}", v, terms[k], 1e-12)
    central_differences(net, ids, labels, grads, rng)
    if "seq_aux_alpha" in extra:
        check_balance_gradient(name, net, io)
    io.update({"grad." + n: g for n, g in grads.items()})
    write_json(name, "config.json", config)
    save(os.path.join(folder(name), "model.safetensors"), w)
    save(os.path.join(folder(name), "io.safetensors"), io)
    return {"attempt": attempt, "smallest gap": min(net.gaps.values()), **terms}


def check_balance_gradient(name, net, io, h=1e-6):
    """balance.layerK.grad_logits by central differences of the term alone."""
    for key in [k for k in io if k.startswith("balance.") and k.endswith(".loss")]:
        k = int(key.split(".")[1][5:])
        net.batch, logits = BATCH, io[f"router.layer{k}.logits"].copy()
        for i in np.ndindex(logits.shape):
            was, value = logits[i], []
            for d in (h, -h):
                logits[i] = was + d
                net.balance(logits, k)
                value.append(net.h[key][0])
            logits[i] = was
            same(f"{name} {key} at {i}", io[f"balance.layer{k}.grad_logits"][i], (value[0] - value[1]) / (2 * h), 1e-10)


def walk(config, weights, tokens, backward):
    """The trajectory: at each step the gradients of one batch, AdamW that decays matrices, then the routers' biases."""
    net, optimizer, out = (
        Reference(config, double(weights)),
        AdamW("matrices"),
        {"loss": [], "grad_norm": [], "learning_rate": []},
    )
    for step in range(TRAJECTORY["steps"]):
        ids = tokens[step % BATCHES]
        terms, rate = net.losses(ids, ids), learning_rate(TRAJECTORY["phases"], step)
        loads = {k: v for k, v in net.h.items() if k.endswith(".load")}
        if min(net.gaps.values()) < 5e-5:
            return None
        for k in terms:
            out.setdefault(k, []).append(terms[k])
        out["learning_rate"].append(rate)
        out["grad_norm"].append(optimizer.step(net.w, backward(net.w, ids), rate))
        for k, load_ in loads.items():
            n = f"model.layers.{k.split('.')[1][5:]}.mlp.gate.e_score_correction_bias"
            net.w[n] = update_bias(net.w[n], load_, config["bias_update_speed"])
    own = {
        n: t
        for n, t in net.w.items()
        if not n.endswith("shared_head.head.weight") and (".embed_tokens" not in n or n == "model.embed_tokens.weight")
    }
    return {**{k: np.array(v) for k, v in out.items()}, **{"final." + n: t for n, t in own.items()}}


def make_trajectory(name):
    from torch_model import gradients

    base, extra = CASES[TRAJECTORY["base"]]
    config = make_config(base, {**extra, "bias_update_speed": TRAJECTORY["bias_update_speed"]})
    for attempt in range(400):
        rng = random(name, attempt)
        w = make_weights(config, base, rng)
        tokens = rng.integers(3, config["vocab_size"], (BATCHES, BATCH, LENGTH))
        out = walk(config, w, tokens, lambda now, ids: gradients(config, now, ids, ids)[1])
        if out:
            break
    else:
        raise SystemExit(f"{name}: no draw without near-ties")
    write_json(name, "config.json", config)
    save(os.path.join(folder(name), "model.safetensors"), w)
    save(os.path.join(folder(name), "trajectory.safetensors"), {"tokens": tokens, **out})
    return {"attempt": attempt, "first loss": out["loss"][0], "last loss": out["loss"][-1]}


def bias_update():
    rng = random("bias_update")
    bias, gamma = rng.standard_normal(8) * 0.1, 0.001
    loads = rng.integers(0, 40, (4, 8))
    loads[1] = 9  # balanced: nothing moves
    loads[2] = [4, 8, 6, 6, 0, 12, 6, 6]  # some exactly at the mean of 6
    out, after = {"load": loads, "before": bias.copy(), "gamma": np.array([gamma])}, []
    for load_ in loads:
        after.append(bias := update_bias(bias, load_, gamma))
    return {**out, "after": np.stack(after)}


def adamw():
    """Five steps of two optimizers on the same gradients; step 0 and 3 are clipped, the others are not."""
    rng = random("adamw")
    shapes = {"bias": (3,), "embedding": (6, 2), "experts": (2, 3, 4), "matrix": (3, 4), "norm": (5,)}
    first = {n: rng.standard_normal(s) for n, s in shapes.items()}
    out = {"initial." + n: t for n, t in first.items()}
    rates, sizes = [1e-2, 2e-2, 2e-2, 1e-2, 5e-3], [3.0, 0.05, 0.02, 1.0, 0.08]
    grads = [{n: rng.standard_normal(s) * size for n, s in shapes.items()} for size in sizes]
    for i, g in enumerate(grads):
        out.update({f"grad.{i}.{n}": t for n, t in g.items()})
    for decay in ("matrices", "all"):
        w, optimizer, norms = {n: t.copy() for n, t in first.items()}, AdamW(decay), []
        for i, g in enumerate(grads):
            norms.append(optimizer.step(w, g, rates[i]))
            out.update({f"{decay}.{i}.{n}": t.copy() for n, t in w.items()})
        out.update({f"{decay}.m.{n}": t for n, t in optimizer.m.items()})
        out.update({f"{decay}.v.{n}": t for n, t in optimizer.v.items()})
    return {**out, "learning_rate": np.array(rates), "grad_norm": np.array(norms)}


def check_adamw(stored):
    """The same five steps with PyTorch's own AdamW and clipping."""
    import torch

    names = [n[8:] for n in stored if n.startswith("initial.")]
    for decay in ("matrices", "all"):
        w = {n: torch.nn.Parameter(torch.from_numpy(stored["initial." + n].copy())) for n in names}
        kept = [n for n in names if decay == "matrices" and w[n].dim() < 2]
        o = torch.optim.AdamW(
            [
                {"params": [w[n] for n in names if n not in kept], "weight_decay": 0.1},
                {"params": [w[n] for n in kept], "weight_decay": 0.0},
            ],
            betas=(0.9, 0.95),
            eps=1e-8,
            foreach=False,
        )
        for i, rate in enumerate(stored["learning_rate"]):
            for n in names:
                w[n].grad = torch.from_numpy(stored[f"grad.{i}.{n}"].copy())
            same("adamw norm", float(torch.nn.utils.clip_grad_norm_(w.values(), 1.0)), stored["grad_norm"][i], 1e-12)
            for group in o.param_groups:
                group["lr"] = float(rate)
            o.step()
            for n in names:
                same(f"adamw {decay} {i} {n}", w[n].detach().numpy(), stored[f"{decay}.{i}.{n}"], 1e-12)


def schedules():
    v3 = {
        "peak": 2.2e-4,
        "middle": 2.2e-5,
        "last": 7.3e-6,
        "warmup": 2000,
        "constant": 156945,
        "cosine": 68347,
        "tail": 5293,
        "end": 2654,
    }
    small = {"peak": 1e-3, "middle": 1e-4, "last": 3e-5, "warmup": 4, "constant": 6, "cosine": 8, "tail": 3, "end": 2}
    v2 = {"peak": 2.4e-4, "warmup": 2000, "total": 214574, "drops": [[0.6, 0.316], [0.9, 0.316**2]]}
    llm = {"peak": 4.2e-4, "warmup": 2000, "total": 211928, "drops": [[0.8, 0.316], [0.9, 0.1]]}
    tiny = {"peak": 1e-3, "warmup": 3, "total": 20, "drops": [[0.6, 0.316], [0.9, 0.316**2]]}
    wsd = [
        {"peak": 1e-3, "final": 1e-4, "warmup": 4, "stable": 8, "decay": 6, "shape": s}
        for s in ("linear", "one_minus_sqrt", "cosine")
    ]
    made = [
        ("v3", "v3", v3, v3_phases),
        ("v3_small", "v3", small, v3_phases),
        ("v2", "multi_step", v2, multi_step_phases),
        ("llm_7b", "multi_step", llm, multi_step_phases),
        ("multi_step_small", "multi_step", tiny, multi_step_phases),
    ]
    made += [(f"wsd_{w['shape']}", "wsd", w, wsd_phases) for w in wsd]
    cases = []
    for name, kind, facts, build in made:
        phases = build(**facts)
        ends = np.cumsum([p["steps"] for p in phases])
        total = int(ends[-1])
        at = (
            range(total + 3)
            if total < 100
            else sorted(
                {int(s) for e in [0, *ends] for s in (e - 1, e, e + 1) if s >= 0}
                | {int(f * total) for f in np.linspace(0, 1, 24)}
                | {999}
            )
        )
        cases.append(
            {
                "name": name,
                "kind": kind,
                "facts": facts,
                "phases": phases,
                "values": [[s, learning_rate(phases, s)] for s in at],
            }
        )
    return {"cases": cases}


def check_against_transformers():
    """The PyTorch model at depth 1 against the stored case of transformers: value and every gradient."""
    from torch_model import gradients

    d = os.path.join(ORACLE, "v3_mtp")
    config = {**json.load(open(d + "/config.json")), "mtp_lambda": 0.3}
    io = load(d + "/io.safetensors")
    terms, grads = gradients(config, load(d + "/model.safetensors"), io["input_ids"], io["input_ids"])
    same("v3_mtp total", terms["loss"], io["mtp.total_loss"][0], 1e-12)
    expected = {n[9:]: g for n, g in io.items() if n.startswith("mtp.grad.")}
    if set(expected) != set(grads):
        raise SystemExit(f"v3_mtp: other gradients: {set(expected) ^ set(grads)}")
    for n, g in expected.items():
        same(f"v3_mtp {n}", grads[n], g, 1e-12)


def make():
    check_against_transformers()
    print("the PyTorch model equals transformers on v3_mtp")
    for name, (base, extra) in CASES.items():
        print(name, make_case(name, base, extra), flush=True)
    print("v3_all_trajectory", make_trajectory("v3_all_trajectory"), flush=True)
    save(os.path.join(folder("bias_update"), "io.safetensors"), bias_update())
    stored = adamw()
    check_adamw(stored)
    save(os.path.join(folder("adamw"), "io.safetensors"), stored)
    with open(os.path.join(folder("schedules"), "schedules.json"), "w") as f:
        f.write('{"cases": [\n' + ",\n".join(json.dumps(c) for c in schedules()["cases"]) + "\n]}\n")


def check():
    """NumPy against the files: every stored value but gradients, and a sample of those by central differences."""
    for name in CASES:
        d = os.path.join(HERE, name)
        io = load(d + "/io.safetensors")
        net = Reference(json.load(open(d + "/config.json")), load(d + "/model.safetensors"))
        net.w = {n: t.copy() for n, t in net.w.items()}
        for k, v in seen(net, net.losses(io["input_ids"], io["labels"])).items():
            same(f"{name} {k}", v, io[k], 1e-12)
        central_differences(
            net,
            io["input_ids"],
            io["labels"],
            {n[5:]: g for n, g in io.items() if n.startswith("grad.")},
            random(name),
            1,
        )
        print("ok", name, f"smallest gap {min(net.gaps.values()):.1e}")
    d = os.path.join(HERE, "v3_all_trajectory")
    stored = load(d + "/trajectory.safetensors")
    net = Reference(json.load(open(d + "/config.json")), load(d + "/model.safetensors"))
    for k, v in net.losses(stored["tokens"][0], stored["tokens"][0]).items():
        same(f"v3_all_trajectory {k}", v, stored[k][0], 1e-12)
    print("ok v3_all_trajectory (its first step)")
    for name, fresh in (("bias_update", bias_update()), ("adamw", adamw())):
        for k, v in load(os.path.join(HERE, name, "io.safetensors")).items():
            same(f"{name} {k}", fresh[k], v, 1e-13)
        print("ok", name)
    if json.load(open(os.path.join(HERE, "schedules", "schedules.json"))) != schedules():
        raise SystemExit("schedules.json differs")
    print("ok schedules")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the stored files with NumPy, write nothing")
    check() if parser.parse_args().check else make()
