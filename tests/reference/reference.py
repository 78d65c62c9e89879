"""What the stored transformers cases lack, in NumPy float64: further terms of the loss, and what moves weights.

`Reference` adds to the forward pass of tests/oracle/check_oracle.py the sequence-wise balance loss, multi-token
prediction of any depth and the z-loss. `update_bias`, `learning_rate` and `AdamW` are the plain formulas.
README.md says which conventions were chosen where papers leave a choice.
"""

import json, math, os, struct, sys
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
from check_oracle import Net, load, rms, sigmoid, topk_ids  # noqa: E402, F401

IGNORED = -100


def log_sum_exp(x):
    m = x.max(-1)
    return m + np.log(np.exp(x - m[..., None]).sum(-1))


def targets(logits, labels, ahead):
    """Rows and targets that count: position i predicts labels[i + ahead]. logits[B, T, V] -> ([n, V], [n])"""
    y = labels[:, ahead:]
    x = logits[:, : y.shape[1]]
    ok = y != IGNORED
    return x[ok], y[ok]


def cross_entropy(logits, labels, ahead):
    x, y = targets(logits, labels, ahead)
    return float((log_sum_exp(x) - x[np.arange(len(y)), y]).mean())


class Reference(Net):
    """The model of one config.json (a dict, with the extra keys of README.md) and its weights (name -> float64)."""

    def __init__(s, config, weights):
        s.cfg, s.w, s.kind, s.h, s.gaps = config, weights, "deepseek_v3", {}, {}

    def moe(s, x, n, k):
        s.batch = x.shape[0]
        return super().moe(x, n, k)

    def route(s, x, n, k):
        ids, weights = super().route(x, n, k)
        s.h[f"router.layer{k}.load"] = np.bincount(ids.reshape(-1), minlength=s.cfg["n_routed_experts"])
        if s.cfg.get("seq_aux_alpha"):
            s.balance(s.h[f"router.layer{k}.logits"], k)
        return ids, weights

    def balance(s, logits, k):
        """alpha * mean over sequences of sum_i f_i P_i, and its gradient with respect to this layer's router logits."""
        a, K, B = s.cfg["seq_aux_alpha"], s.cfg["num_experts_per_tok"], s.batch
        E = logits.shape[-1]
        score = sigmoid(logits).reshape(B, -1, E)
        T = score.shape[1]
        ids, gap = topk_ids(score, K)  # no bias, no groups
        s.gap("balance", gap)
        chosen = np.zeros_like(score)
        np.put_along_axis(chosen, ids, 1.0, -1)
        total = score.sum(-1, keepdims=True)
        share = score / total
        f, p = chosen.sum(1) * E / (K * T), share.mean(1)  # [B, E]
        up = np.broadcast_to((a / (B * T) * f)[:, None], share.shape)
        down = (up - (up * share).sum(-1, keepdims=True)) / total * score * (1 - score)
        s.h.update(
            {
                f"balance.layer{k}.loss": np.array([a * (f * p).sum(-1).mean()]),
                f"balance.layer{k}.f": f,
                f"balance.layer{k}.p": p,
                f"balance.layer{k}.grad_logits": down.reshape(-1, E),
            }
        )

    def mtp_depth(s, ids, hidden, k):
        """Depth k = 1, 2, ...: hidden[B, >= S-k, D] of depth k-1 -> (its own after shared_head.norm, logits)."""
        L, e, w = s.cfg["num_hidden_layers"] + k - 1, s.cfg["rms_norm_eps"], s.w
        n, (B, S) = f"model.layers.{L}", ids.shape
        T = S - k
        x = (
            np.concatenate(
                [
                    rms(w["model.embed_tokens.weight"][ids[:, k:]], w[n + ".enorm.weight"], e),
                    rms(hidden[:, :T], w[n + ".hnorm.weight"], e),
                ],
                -1,
            )
            @ w[n + ".eh_proj.weight"].T
        )
        at = np.broadcast_to(np.arange(T, dtype=np.float64), (B, T))
        x = s.layer(x, L, at, np.broadcast_to(np.tril(np.ones((T, T), bool)), (B, T, T)), True)
        x = rms(x, w[n + ".shared_head.norm.weight"], e)
        return x, x @ w["lm_head.weight"].T

    def losses(s, ids, labels):
        """Every term of the loss, each as it enters the total; fills s.h with what the layers saw."""
        c, (B, S) = s.cfg, ids.shape
        s.h.clear()
        logits = s.forward(ids, np.broadcast_to(np.arange(S, dtype=np.float64), (B, S)), None)
        s.h["logits"] = logits
        out = {"main_loss": cross_entropy(logits, labels, 1)}
        if c.get("z_loss"):
            out["z_loss"] = c["z_loss"] * float((log_sum_exp(targets(logits, labels, 1)[0]) ** 2).mean())
        depths, hidden = c.get("num_nextn_predict_layers", 0), s.h["hidden.final_norm"]
        for k in range(1, depths + 1):
            hidden, lg = s.mtp_depth(ids, hidden, k)
            s.h[f"mtp.depth{k}.hidden"], s.h[f"mtp.depth{k}.logits"] = hidden, lg
            s.h[f"mtp.depth{k}.cross_entropy"] = np.array([cross_entropy(lg, labels, k + 1)])
            out["mtp_loss"] = out.get("mtp_loss", 0.0) + c["mtp_lambda"] / depths * float(
                s.h[f"mtp.depth{k}.cross_entropy"][0]
            )
        if c.get("seq_aux_alpha"):
            out["balance_loss"] = float(
                sum(v[0] for k, v in s.h.items() if k.startswith("balance.") and k.endswith(".loss"))
            )
        out["loss"] = sum(out.values())
        return out


def update_bias(bias, loads, gamma):
    """b_i += gamma * sign(mean load - load_i): once a step, over the loads of the whole global batch; sign(0) = 0."""
    return bias + gamma * np.sign(loads.mean() - loads)


# ------------------------------------------------------------------------------------------------ learning rates
def learning_rate(phases, step):
    """Phases {shape, steps, to} follow each other from 0; one of N steps reaches `to` at its last step; step from 0."""
    start, n = 0.0, step + 1
    for p in phases:
        if n <= p["steps"]:
            t = n / p["steps"]
            mix = {
                "constant": 1.0,
                "linear": t,
                "cosine": (1 - math.cos(math.pi * t)) / 2,
                "one_minus_sqrt": math.sqrt(t),
            }[p["shape"]]
            return start + (p["to"] - start) * mix
        n, start = n - p["steps"], p["to"]
    return start


def phase(shape, steps, to):
    return {"shape": shape, "steps": steps, "to": to}


def v3_phases(peak, middle, last, warmup, constant, cosine, tail, end):
    return [
        phase("linear", warmup, peak),
        phase("constant", constant, peak),
        phase("cosine", cosine, middle),
        phase("constant", tail, middle),
        phase("constant", end, last),
    ]


def multi_step_phases(peak, warmup, total, drops):
    """drops: [(fraction of the total, factor of the peak)]: the factor holds from 0-based step fraction * total on."""
    out, at, rate = [phase("linear", warmup, peak)], warmup, peak
    for fraction, factor in drops:
        n = round(fraction * total)
        out.append(phase("constant", n - at, rate))
        at, rate = n, peak * factor
    return out + [phase("constant", total - at, rate)]


def wsd_phases(peak, final, warmup, stable, decay, shape):
    return [phase("linear", warmup, peak), phase("constant", stable, peak), phase(shape, decay, final)]


# ------------------------------------------------------------------------------------------------ AdamW
class AdamW:
    """Decoupled decay on the parameters of one group: "all", or "matrices" (those with two axes or more)."""

    def __init__(s, decay, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, clip=1.0):
        s.decay, s.betas, s.eps, s.weight_decay, s.clip, s.step_count, s.m, s.v = (
            decay,
            betas,
            eps,
            weight_decay,
            clip,
            0,
            {},
            {},
        )

    def step(s, weights, gradients, rate):
        """Changes weights in place; returns the global gradient norm before clipping."""
        norm = math.sqrt(sum(float((g * g).sum()) for g in gradients.values()))
        scale = min(1.0, s.clip / (norm + 1e-6))
        s.step_count += 1
        b1, b2 = s.betas
        for n, g in gradients.items():
            g, w = g * scale, weights[n]
            m = s.m[n] = b1 * s.m.get(n, 0.0) + (1 - b1) * g
            v = s.v[n] = b2 * s.v.get(n, 0.0) + (1 - b2) * g * g
            if s.decay == "all" or w.ndim >= 2:
                w *= 1 - rate * s.weight_decay
            w -= rate * (m / (1 - b1**s.step_count)) / (np.sqrt(v / (1 - b2**s.step_count)) + s.eps)
        return norm


# ------------------------------------------------------------------------------------------------ files
NAMES = {"float32": "F32", "float64": "F64", "int64": "I64"}


def save(path, tensors):
    """Safetensors: widest items first so that all are aligned, then by name; the same input gives the same bytes."""
    head, blobs, at = {"__metadata__": {"format": "pt"}}, [], 0
    for n, t in sorted(tensors.items(), key=lambda i: (-i[1].dtype.itemsize, i[0])):
        b = np.ascontiguousarray(t).tobytes()
        head[n] = {"dtype": NAMES[str(t.dtype)], "shape": list(t.shape), "data_offsets": [at, at + len(b)]}
        blobs.append(b)
        at += len(b)
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
