#!/usr/bin/env python3
"""Opens a checkpoint directory with Hugging Face transformers, for a second opinion on what Fathom saved.

config.json, model.safetensors and tokenizer.json must open as they are: every weight that the model wants is there in
its shape, nothing else is (multi-token prediction layers excepted, which transformers leaves aside), and the tokenizer
gives a text back that it encoded. Prints the loss on a text, or on stored token ids; with stored logits it also
compares those. Exit status 1 when anything differs.
"""

import argparse, math, os, re, sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def own_python(build):
    """Goes on in the environment of `./dev bench peer` where this interpreter has no transformers."""
    try:
        import torch, transformers  # noqa: F401
    except ImportError:
        sys.path.insert(0, os.path.join(ROOT, "bench", "peer"))
        from environment import python_of

        python = python_of(os.path.abspath(build))
        if sys.prefix == os.path.dirname(os.path.dirname(python)):
            raise
        os.execv(python, [python, *sys.argv])


def open_model(folder):
    import torch, transformers

    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    layers = model.config.num_hidden_layers
    extra = [
        k
        for k in report["unexpected_keys"]
        if not ((m := re.match(r"model\.layers\.(\d+)\.", k)) and int(m[1]) >= layers)
    ]
    wrong = [
        f"{what}: {', '.join(map(str, sorted(keys)[:5]))}{' ...' if len(keys) > 5 else ''}"
        for what, keys in (
            ("missing weights", report["missing_keys"]),
            ("unknown weights", extra),
            ("other shapes", report["mismatched_keys"]),
        )
        if keys
    ]
    return model.eval(), wrong


def losses(model, ids, labels):
    """Mean cross-entropy (labels not shifted, -100 ignored) and logits. ids, labels[B, S] -> (float, [B, S, V])"""
    import torch

    with torch.no_grad():
        out = model(input_ids=ids, labels=labels, use_cache=False)
    return out.loss.item(), out.logits


def check_tokenizer(folder, tokenizer, text):
    """What is wrong when transformers encodes a text and decodes it again."""
    from tokenizers import Tokenizer

    file = os.path.join(folder, "tokenizer.json")
    if not os.path.exists(file):
        return ["tokenizer.json is missing"]
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    wrong = []
    if ids != Tokenizer.from_file(file).encode(text, add_special_tokens=False).ids:
        wrong.append("AutoTokenizer encodes otherwise than tokenizer.json")
    if tokenizer.decode(ids, clean_up_tokenization_spaces=False) != text:
        wrong.append("decoding does not give the text back")
    return wrong


def text_loss(model, tokenizer, text, most):
    """Loss on the first tokens of a text, and the same in bits per byte; the very first is not counted."""
    import torch

    ids = tokenizer(text, add_special_tokens=False)["input_ids"][: min(most, model.config.max_position_embeddings)]
    if len(ids) < 2:
        raise SystemExit("the text has fewer than two tokens")
    row = torch.tensor([ids])
    loss, counted = losses(model, row, row)[0], len(ids) - 1
    size = len(tokenizer.decode(ids[1:], clean_up_tokenization_spaces=False).encode())
    return f"loss {loss:.6f} over {counted} tokens, {loss * counted / size / math.log(2):.4f} bits per byte"


def check_stored(model, file, limit):
    """Prints the loss on stored token ids; returns what differs from the stored loss and logits."""
    from safetensors.torch import load_file

    stored, wrong = load_file(file), []
    ids = stored["input_ids"].long()
    loss, logits = losses(model, ids, stored.get("labels", ids).long())
    print(f"{file}: loss {loss:.6f}")
    if "loss" in stored and not abs(stored["loss"].item() - loss) <= limit * loss:
        wrong.append(f"loss is {loss:.6f}, stored {stored['loss'].item():.6f}")
    if "logits" in stored and stored["logits"].shape != logits.shape:
        wrong.append(f"logits have shape {list(logits.shape)}, the stored ones {list(stored['logits'].shape)}")
    elif "logits" in stored:
        apart = ((stored["logits"].double() - logits.double()).abs().max() / logits.abs().max()).item()
        print(f"largest difference of logits: {apart:.2e} of the largest logit")
        if not apart <= limit:
            wrong.append(f"logits differ by {apart:.2e}, allowed {limit:.0e}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    option = parser.add_argument
    option("folder", help="the checkpoint directory")
    option("--text", metavar="FILE", help="print the loss on the first tokens of this text, also in bits per byte")
    option("--tokens", type=int, default=256, help="tokens of the text that are used (default 256)")
    option(
        "--stored", metavar="FILE", help="safetensors: input_ids [B,S]; labels [B,S] if others; logits, loss to compare"
    )
    option("--limit", type=float, default=2e-4, help="how far loss and logits may differ, relatively (default 2e-4)")
    option("--build", default=os.path.join(ROOT, "build"), help="where transformers is installed if Python has none")
    args = parser.parse_args()
    if not os.path.isdir(args.folder):
        raise SystemExit(f"{args.folder}: no such directory")
    own_python(args.build)
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        model, wrong = open_model(args.folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(args.folder)
    except Exception as e:  # transformers and the libraries under it raise kinds of their own
        raise SystemExit(f"{args.folder}: does not open: {type(e).__name__}: {str(e).strip().splitlines()[0]}") from e
    size = sum(p.numel() for p in model.parameters())
    print(f"{type(model).__name__}: {size:,} parameters; {type(tokenizer).__name__}: {len(tokenizer):,} tokens")
    if len(tokenizer) > model.config.vocab_size:
        wrong.append(f"tokenizer has {len(tokenizer)} tokens, vocab_size is {model.config.vocab_size}")
    text = "int main() { return 0; }\n\tZwölf  Löwen, 12345\n"
    if args.text:
        with open(args.text, encoding="utf-8", errors="replace") as f:
            text = f.read(200_000)
    wrong += check_tokenizer(args.folder, tokenizer, text)
    if args.text and not wrong:
        print(f"{args.text}: {text_loss(model, tokenizer, text, args.tokens)}")
    if args.stored:
        wrong += check_stored(model, args.stored, args.limit)
    for line in wrong:
        print(f"{args.folder}: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
