#!/usr/bin/env python3
"""Writes include/fathom/data/detail/unicode_classes.hpp from tests/oracle/unicode_classes.json.

The JSON holds the code points of each class as the Hugging Face tokenizers library sees them; run this again after
replacing it."""
import json
import pathlib
import textwrap

root = pathlib.Path(__file__).resolve().parent.parent
classes = json.loads((root / "tests/oracle/unicode_classes.json").read_text())
names = {"L": "letters", "M": "marks", "N": "numbers", "P": "punctuation", "S": "symbols", "space": "spaces"}

out = [
    "// The character classes of token patterns as the Hugging Face tokenizers library sees them, because PCRE2's",
    "// are of another Unicode version, and one other character changes token ids. By tools/unicode_classes.py.",
    "#pragma once",
    "",
    "namespace fathom::detail {",
    "",
    "/// The code points first to last, both included.",
    "struct code_range {",
    "    char32_t first;",
    "    char32_t last;",
    "};",
    "",
    "// clang-format off",
]
for key, name in names.items():
    ranges = ", ".join("{%d,%d}" % tuple(r) for r in classes[key])
    out.append(f"inline constexpr code_range {name}[] = {{")
    out += textwrap.wrap(ranges, 116, initial_indent="    ", subsequent_indent="    ")
    out.append("};")
out += ["// clang-format on", "", "}  // namespace fathom::detail", ""]
(root / "include/fathom/data/detail/unicode_classes.hpp").write_text("\n".join(out))
