"""The configurations of bench/step.cpp, as transformers models."""

import resource

# fmt: off
SHARED = dict(first_k_dense_replace=1, n_shared_experts=1, n_group=4, topk_group=2)
V3 = {
    "T": dict(SHARED, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
              q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
              intermediate_size=128, moe_intermediate_size=32, n_routed_experts=8, num_experts_per_tok=2,
              vocab_size=256, max_position_embeddings=128),
    "S": dict(SHARED, hidden_size=256, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=8,
              q_lora_rank=96, kv_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32,
              intermediate_size=704, moe_intermediate_size=128, n_routed_experts=16, num_experts_per_tok=4,
              vocab_size=4096, max_position_embeddings=1024),
    "M": dict(SHARED, hidden_size=512, num_hidden_layers=12, num_attention_heads=8, num_key_value_heads=8,
              q_lora_rank=192, kv_lora_rank=128, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64,
              intermediate_size=1408, moe_intermediate_size=256, n_routed_experts=16, num_experts_per_tok=4,
              vocab_size=16384, max_position_embeddings=2048),
}
LLAMA = {"L": dict(hidden_size=512, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4,
                   intermediate_size=1408, vocab_size=16384, max_position_embeddings=2048)}
# fmt: on
SHAPE = {"T": (2, 32), "S": (8, 256), "M": (4, 512), "L": (4, 512)}  # sequences, tokens of each


def build(name, attention, experts):
    import torch, transformers

    torch.manual_seed(0)
    kind, facts = ("Llama", LLAMA[name]) if name in LLAMA else ("DeepseekV3", V3[name])
    config = getattr(transformers, kind + "Config")(**facts, use_cache=False)
    config._attn_implementation = attention
    if experts:
        config._experts_implementation = experts
    return getattr(transformers, kind + "ForCausalLM")(config).train()


def optimizer(model):
    import torch

    return torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)


def step(forward, parameters, optimizer, tokens):
    """Forward, loss, backward, clipping, AdamW: returns the loss."""
    import torch

    loss = forward(input_ids=tokens, labels=tokens).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def peak_rss_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
