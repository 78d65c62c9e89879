#!/usr/bin/env python3
"""Opens a checkpoint directory with Hugging Face transformers, for a second opinion on what Fathom saved.

config.json, model.safetensors and tokenizer.json must open as they are: every weight that the model wants is there in its shape,
nothing else is (multi-token prediction layers excepted, which transformers leaves aside), and the tokenizer gives a text back that it
encoded. Prints the loss on a text, or on stored token ids; with stored logits it also compares those. Exit status 1 when anything differs.
"""
import argparse, json, os, re, sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def own_python(build):
    """Goes on in the environment of `./dev bench peer` where this interpreter has no transformers."""
    try: import torch, transformers  # noqa: F401
    except ImportError:
        sys.path.insert(0, os.path.join(ROOT, "bench", "peer"))
        from environment import python_of
        python = python_of(os.path.abspath(build))
        if sys.prefix == os.path.dirname(os.path.dirname(python)): raise
        os.execv(python, [python, *sys.argv])


def open_model(folder):
    import torch, transformers
    model, report = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    layers = model.config.num_hidden_layers
    extra = [k for k in report["unexpected_keys"] if not ((m := re.match(r"model\.layers\.(\d+)\.", k)) and int(m[1]) >= layers)]
    wrong = [f"{what}: {', '.join(map(str, sorted(keys)[:5]))}{' ...' if len(keys) > 5 else ''}"
             for what, keys in (("missing weights", report["missing_keys"]), ("unknown weights", extra), ("other shapes", report["mismatched_keys"])) if keys]
    return model.eval(), wrong


def losses(model, ids, labels):
    """Mean cross-entropy (labels not shifted, -100 ignored) and logits. ids[B, S], labels[B, S] -> (float, [B, S, V])"""
    import torch
    with torch.no_grad(): out = model(input_ids=ids, labels=labels, use_cache=False)
    return out.loss.item(), out.logits


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="the checkpoint directory")
    parser.add_argument("--text", metavar="FILE", help="print the loss on the first tokens of this text, also in bits per byte")
    parser.add_argument("--stored", metavar="FILE", help="safetensors with input_ids [B,S] and, to compare, logits [B,S,V] and loss [1]; labels [B,S] if others than input_ids")
    parser.add_argument("--limit", type=float, default=2e-4, help="how far loss and logits may differ, relative to the largest (default 2e-4)")
    parser.add_argument("--tokens", type=int, default=256, help="tokens of the text that are used (default 256)")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="the build folder in which transformers is installed when this Python has none")
    args = parser.parse_args()
    own_python(args.build)
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch, transformers
    from safetensors.torch import load_file
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

    if not os.path.isdir(args.folder): raise SystemExit(f"{args.folder}: no such directory")
    try:
        model, wrong = open_model(args.folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(args.folder)
    except Exception as e:  # transformers and the libraries under it raise kinds of their own
        raise SystemExit(f"{args.folder}: does not open: {type(e).__name__}: {str(e).strip().splitlines()[0]}") from e
    print(f"{type(model).__name__}: {sum(p.numel() for p in model.parameters()):,} parameters; {type(tokenizer).__name__}: {len(tokenizer):,} tokens")
    if len(tokenizer) > model.config.vocab_size: wrong.append(f"tokenizer has {len(tokenizer)} tokens, vocab_size is {model.config.vocab_size}")
    if os.path.exists(os.path.join(args.folder, "tokenizer.json")):
        from tokenizers import Tokenizer
        own = Tokenizer.from_file(os.path.join(args.folder, "tokenizer.json"))
        text = open(args.text, encoding="utf-8", errors="replace").read(200_000) if args.text else "int main() { return 0; }\n\tZwölf  Löwen, 12345\n"
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if ids != own.encode(text, add_special_tokens=False).ids: wrong.append("AutoTokenizer encodes otherwise than tokenizer.json")
        if tokenizer.decode(ids, clean_up_tokenization_spaces=False) != text: wrong.append("decoding does not give the text back")
        if args.text:
            ids = ids[: args.tokens]
            loss, _ = losses(model, torch.tensor([ids]), torch.tensor([ids]))
            size = len(tokenizer.decode(ids[1:], clean_up_tokenization_spaces=False).encode())
            print(f"{args.text}: loss {loss:.6f} over {len(ids) - 1} tokens, {loss * (len(ids) - 1) / size / 0.6931471805599453:.4f} bits per byte")
    else: wrong.append("tokenizer.json is missing")
    if args.stored:
        stored = load_file(args.stored)
        ids = stored["input_ids"].long()
        loss, logits = losses(model, ids, stored["labels"].long() if "labels" in stored else ids)
        print(f"{args.stored}: loss {loss:.6f}")
        if "loss" in stored and not abs(stored["loss"].item() - loss) <= args.limit * loss: wrong.append(f"loss is {loss:.6f}, stored {stored['loss'].item():.6f}")
        if "logits" in stored:
            ours = stored["logits"].double()
            if ours.shape != logits.shape: wrong.append(f"logits have shape {list(ours.shape)}, transformers' {list(logits.shape)}")
            else:
                apart = ((ours - logits.double()).abs().max() / logits.abs().max()).item()
                print(f"largest difference of logits: {apart:.2e} of the largest logit")
                if not apart <= args.limit: wrong.append(f"logits differ by {apart:.2e}, allowed {args.limit:.0e}")
    for line in wrong: print(f"{args.folder}: {line}")
    return 1 if wrong else 0


if __name__ == "__main__": sys.exit(main())
