#!/usr/bin/env python3
"""Writes tokenizer.json and ids.json beside this file with the Hugging Face tokenizers library (0.23.3): what it trains
on the texts of tests/oracle/tokenizer_small/cases.jsonl, and the ids that it gives them. The test of tokenizer_trainer
expects the same of ours, so that its file is one that the library opens and reads in the same way."""
import json
import pathlib

from tokenizers import Tokenizer, pre_tokenizers, trainers

here = pathlib.Path(__file__).parent
oracle = here.parent.parent.parent / "oracle/tokenizer_small"
texts = [case["text"] for case in map(json.loads, open(oracle / "cases.jsonl")) if "text" in case]
small = json.loads((oracle / "tokenizer.json").read_text())

tokenizer = Tokenizer.from_str(json.dumps(
    {**small, "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}))
tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
    vocab_size=600, min_frequency=2, special_tokens=[t["content"] for t in small["added_tokens"][:3]],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
tokenizer.save(str(here / "tokenizer.json"))
ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
(here / "ids.json").write_text(json.dumps(ids, separators=(",", ":")))
