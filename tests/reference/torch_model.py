"""The same losses as reference.py, written a second time in PyTorch, for its automatic differentiation."""

import torch
import torch.nn.functional as F


def norm(x, w, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


def rotate(x, angle):
    """Pairs (2i, 2i+1). x[B, T, H, d], angle[T, d/2]"""
    even, odd, c, s = x[..., 0::2], x[..., 1::2], angle.cos()[None, :, None], angle.sin()[None, :, None]
    return torch.stack((even * c - odd * s, even * s + odd * c), -1).flatten(-2)


class Model:
    def __init__(self, config, weights):
        self.c, self.w, self.balance = config, weights, []

    def linear(self, x, name):
        return F.linear(x, self.w[name + ".weight"])

    def attention(self, x, n):
        c = self.c
        B, T, _ = x.shape
        H, nope, rope, dv = c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
        q = self.linear(norm(self.linear(x, n + "q_a_proj"), self.w[n + "q_a_layernorm.weight"], 1e-6), n + "q_b_proj")
        q_nope, q_rope = q.view(B, T, H, nope + rope).split([nope, rope], -1)
        latent, k_rope = self.linear(x, n + "kv_a_proj_with_mqa").split([c["kv_lora_rank"], rope], -1)
        up = self.linear(norm(latent, self.w[n + "kv_a_layernorm.weight"], 1e-6), n + "kv_b_proj")
        k_nope, v = up.view(B, T, H, nope + dv).split([nope, dv], -1)
        frequency = c["rope_parameters"]["rope_theta"] ** (-torch.arange(0, rope, 2, dtype=x.dtype) / rope)
        angle = torch.arange(T, dtype=x.dtype)[:, None] * frequency
        q = torch.cat((q_nope, rotate(q_rope, angle)), -1).transpose(1, 2)
        k = torch.cat((k_nope, rotate(k_rope[:, :, None], angle).expand(-1, -1, H, -1)), -1).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True)
        return self.linear(y.transpose(1, 2).reshape(B, T, -1), n + "o_proj")

    def dense(self, x, n):
        return self.linear(F.silu(self.linear(x, n + "gate_proj")) * self.linear(x, n + "up_proj"), n + "down_proj")

    def experts(self, x, n):
        c = self.c
        B, T, _ = x.shape
        E, K, G = c["n_routed_experts"], c["num_experts_per_tok"], c["n_group"]
        score = self.linear(x, n + "gate").sigmoid()
        with torch.no_grad():
            pick = (score + self.w[n + "gate.e_score_correction_bias"]).view(B, T, G, E // G)
            best = pick.topk(2, -1).values.sum(-1).topk(c["topk_group"], -1).indices
            open_ = torch.zeros(B, T, G, dtype=torch.bool).scatter_(-1, best, True)
            ids = pick.masked_fill(~open_[..., None], -torch.inf).flatten(-2).topk(K, -1).indices
            used = torch.zeros_like(score).scatter_(-1, ids, 1.0)
            if c.get("seq_aux_alpha"):
                f = torch.zeros_like(score).scatter_(-1, score.topk(K, -1).indices, 1.0).mean(1) * E / K
        weight = score * used
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-20) * c["routed_scaling_factor"]
        if c.get("seq_aux_alpha"):
            p = (score / score.sum(-1, keepdim=True)).mean(1)
            self.balance.append(c["seq_aux_alpha"] * (f * p).sum(-1).mean())
        y = self.dense(x, n + "shared_experts.")
        for e in range(E):
            y = y + weight[..., e : e + 1] * self.dense(x, f"{n}experts.{e}.")
        return y

    def layer(self, x, k, sparse):
        n, eps = f"model.layers.{k}.", self.c["rms_norm_eps"]
        x = x + self.attention(norm(x, self.w[n + "input_layernorm.weight"], eps), n + "self_attn.")
        y = norm(x, self.w[n + "post_attention_layernorm.weight"], eps)
        return x + (self.experts if sparse else self.dense)(y, n + "mlp.")

    def losses(self, ids, labels):
        c, w, eps = self.c, self.w, self.c["rms_norm_eps"]
        self.balance = []
        x = w["model.embed_tokens.weight"][ids]
        for k in range(c["num_hidden_layers"]):
            x = self.layer(x, k, k >= c["first_k_dense_replace"])
        x = norm(x, w["model.norm.weight"], eps)
        logits = self.linear(x, "lm_head")
        mean = lambda z, ahead: F.cross_entropy(z[:, : ids.shape[1] - ahead].flatten(0, 1), labels[:, ahead:].flatten())
        out = {"main_loss": mean(logits, 1)}
        if c.get("z_loss"):
            out["z_loss"] = c["z_loss"] * logits[:, :-1][labels[:, 1:] != -100].logsumexp(-1).pow(2).mean()
        depths = c.get("num_nextn_predict_layers", 0)
        for k in range(1, depths + 1):
            L = c["num_hidden_layers"] + k - 1
            n = f"model.layers.{L}."
            embedded = norm(w["model.embed_tokens.weight"][ids[:, k:]], w[n + "enorm.weight"], eps)
            x = self.linear(torch.cat((embedded, norm(x[:, :-1], w[n + "hnorm.weight"], eps)), -1), n + "eh_proj")
            x = norm(self.layer(x, L, True), w[n + "shared_head.norm.weight"], eps)
            out["mtp_loss"] = out.get("mtp_loss", 0) + c["mtp_lambda"] / depths * mean(self.linear(x, "lm_head"), k + 1)
        if self.balance:
            out["balance_loss"] = sum(self.balance)
        out["loss"] = sum(out.values())
        return out


def gradients(config, weights, ids, labels):
    """({term: float}, {name: NumPy gradient of the whole loss}); a weight that takes no part has no entry."""
    own = lambda n: (
        not n.endswith(("e_score_correction_bias", ".embed_tokens.weight", "shared_head.head.weight"))
        or n == "model.embed_tokens.weight"
    )
    w = {n: torch.from_numpy(v.copy()).requires_grad_(own(n)) for n, v in weights.items()}
    terms = Model(config, w).losses(torch.tensor(ids), torch.tensor(labels))
    terms["loss"].backward()
    return {k: v.item() for k, v in terms.items()}, {n: t.grad.numpy() for n, t in w.items() if t.grad is not None}
