#!/usr/bin/env python3
"""One training step of the tiny configuration in a fresh process; prints the time of day at which it ended."""

import time

import torch
from models import SHAPE, build, optimizer, peak_rss_mib, step

model = build("T", "sdpa", None)
step(model, list(model.parameters()), optimizer(model), torch.randint(0, model.config.vocab_size, SHAPE["T"]))
print(time.time(), peak_rss_mib())
