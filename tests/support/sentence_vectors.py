"""Varied texts and what sentence-transformers makes of them, for ours to be compared with.

`python -m tests.support.sentence_vectors FOLDER`, in an environment that has sentence-transformers
(6.2.0 made what is recorded), writes the vectors of all-MiniLM-L6-v2 in FOLDER anew.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

VECTORS = Path(__file__).parents[1] / "golden" / "embeddings" / "all-minilm-l6-v2.npy"
"""[texts, 384] float16: good to 1e-7 of a cosine."""

_ODD = (
    " ",
    "\n\t ",
    ".",
    "a",
    "I",
    "?!",
    "…",
    "0",
    "-1.5e-9",
    "\u200b",
    "\ufeff",
    "\u0000",
    "\x07bell",
    "\u2028line\u2029paragraph",
    "[CLS] [SEP] [MASK] [PAD]",
    "</s>",
    "NaN",
    "null",
    "{}",
    "''",
    "Straße",
    "ﬁne ligature",
    "e\u0301 is é",
    "İstanbul",
    "ǅ",
    "naïve café",
    "über",
    "ΑΒΓ δεζ",
    "Привет, мир",
    "שלום עולם",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "你好，世界",
    "こんにちは世界",
    "안녕하세요 세계",
    "👍",
    "👩‍👩‍👧‍👦 family",
    "🇫🇷🇩🇪",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
    "zalgo h̷e̷ c̴o̴m̴e̴s̴",
    "print('hello')\nfor i in range(3):\n    pass",
    "SELECT * FROM t WHERE a = 'b';",
    '{"key": ["value", 1, null]}',
    "https://example.org/a?b=c&d=%20#e",
    "a@b.example",
    "C:\\dir\\x",
    "x = \\frac{1}{2} \\sum_i^n a_i",
    "ACGTACGTTAGC",
    "supercalifragilisticexpialidocious",
    "antidisestablishmentarianism" * 4,
    "a" * 300,
    "word " * 400,
    "🙂" * 200,
    "字" * 300,
    "1 " * 254,
    "1 " * 253,
    "1 " * 255,
    "UPPER CASE TEXT",
    "lower case text",
    "MiXeD cAsE tExT",
)
_WORDS = (
    "the",
    "a",
    "river",
    "city",
    "moves",
    "quickly",
    "because",
    "seven",
    "engineers",
    "never",
    "slept",
    "under",
    "red",
    "bridges",
    "while",
    "music",
    "from",
    "Lisbon",
    "filled",
    "2024",
    "data",
    "model",
    "train",
    "early",
    "tea",
    "iron",
    "house",
    "and",
    "of",
    "with",
)


def texts() -> list[str]:
    """Of many kinds, lengths and scripts; some have more tokens than the model takes."""
    random = Random(20261130)
    made = [" ".join(random.choices(_WORDS, k=random.randint(2, 90))) + "." for _ in range(70)]
    return [*_ODD, *made]


def recorded() -> NDArray[np.float32]:
    return np.load(VECTORS).astype(np.float32)


def main(folder: str) -> int:
    from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found,unused-ignore]

    model = SentenceTransformer(folder, device="cpu")
    vectors = np.stack([model.encode(text) for text in texts()])
    VECTORS.parent.mkdir(exist_ok=True)
    np.save(VECTORS, vectors.astype(np.float16))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
