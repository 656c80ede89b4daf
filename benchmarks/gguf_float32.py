"""`python -m benchmarks.gguf_float32 IN.gguf OUT.gguf`: the same model with float32 weights.

llama.cpp is measured on the weights that the others have: those of the default model come out of a
quantized GGUF file too.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize

_WRITTEN_BY_THE_WRITER = ("GGUF.", "general.architecture", "general.file_type")
_ALL_FLOAT32 = 0


def convert(source: Path, target: Path) -> None:
    reader = GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = GGUFWriter(target, architecture)
    writer.add_file_type(_ALL_FLOAT32)
    for name, value in reader.fields.items():
        if name.startswith(_WRITTEN_BY_THE_WRITER):
            continue
        kind = value.types[0]
        items = value.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(name, value.contents(), kind, sub_type=items)
    for tensor in reader.tensors:
        weights = dequantize(tensor.data, tensor.tensor_type).astype("float32")
        writer.add_tensor(tensor.name, weights, raw_dtype=GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
