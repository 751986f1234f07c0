"""Writes a small random model with BERT's tensor names as a Hugging Face style folder. Needs Python alone.

    synthetic_model.py FOLDER [SEED]

examples/quickstart.sh takes it where the real model cannot be had.
"""

import array
import json
import pathlib
import random
import struct
import sys

HIDDEN, INNER, LAYERS, WORDS = 200, 520, 3, 500  # no multiple of 128, so the last blocks are ragged


def shapes() -> dict[str, list[int]]:
    named = {
        "embeddings.word_embeddings.weight": [WORDS, HIDDEN],
        "embeddings.LayerNorm.weight": [HIDDEN],
        "embeddings.LayerNorm.bias": [HIDDEN],
    }
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}"
        linears = {
            "attention.self.query": [HIDDEN, HIDDEN],
            "attention.self.key": [HIDDEN, HIDDEN],
            "attention.self.value": [HIDDEN, HIDDEN],
            "attention.output.dense": [HIDDEN, HIDDEN],
            "intermediate.dense": [INNER, HIDDEN],
            "output.dense": [HIDDEN, INNER],
        }
        for name, shape in linears.items():
            named[f"{layer}.{name}.weight"] = shape
            named[f"{layer}.{name}.bias"] = shape[:1]
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            named[f"{layer}.{name}.weight"] = [HIDDEN]
            named[f"{layer}.{name}.bias"] = [HIDDEN]
    return named


def main():
    folder = pathlib.Path(sys.argv[1])
    source = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    folder.mkdir(parents=True, exist_ok=True)
    header, data = {"__metadata__": {"format": "pt"}}, bytearray()
    for name, shape in sorted(shapes().items()):
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        values = array.array("f", (source.gauss(0.0, 0.05) for _ in range(count)))
        if sys.byteorder == "big":
            values.byteswap()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "hidden_size": HIDDEN}) + "\n")


if __name__ == "__main__":
    main()
