"""Element types: rlk.v1.DataType beside numpy, torch and text."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import ml_dtypes
import numpy as np

from rlk._proto import tensor_pb2

# By rlk.v1.DataType number. The numbers are frozen: they enter the digest's preamble.
NAMES: Dict[int, str] = {
    number: name[len("DATA_TYPE_") :]
    for name, number in tensor_pb2.DataType.items()
    if number != tensor_pb2.DATA_TYPE_UNSPECIFIED
}

_NUMPY: Dict[str, np.dtype] = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F64": np.dtype(np.float64),
    "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}
_NUMBERS: Dict[str, int] = {name: number for number, name in NAMES.items()}
_BY_NUMPY: Dict[np.dtype, int] = {dtype: _NUMBERS[name] for name, dtype in _NUMPY.items()}
# Names of the torch dtypes, so that nothing here imports torch.
_TORCH: Dict[str, str] = {
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float64": "F64",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "bool": "BOOL",
}
_TEXT: Dict[str, int] = {
    **{name.lower(): number for name, number in _NUMBERS.items()},
    **{f"data_type_{name.lower()}": number for name, number in _NUMBERS.items()},
    **{text: _NUMBERS[name] for text, name in _TORCH.items()},
}


def names() -> List[str]:
    """All names, in the order of their numbers."""
    return [NAMES[number] for number in sorted(NAMES)]


def to_numpy(number: int) -> Optional[np.dtype]:
    """The numpy dtype of an rlk.v1.DataType number, or None for an unknown number."""
    name = NAMES.get(number)
    return None if name is None else _NUMPY[name]


def from_numpy(dtype: np.dtype) -> Optional[int]:
    """The rlk.v1.DataType number of a numpy dtype of either byte order, or None."""
    # bfloat16 is of no kind that numpy knows, but has a byte order all the same.
    return _BY_NUMPY.get(dtype.newbyteorder("=") if dtype.byteorder == ">" else dtype)


def is_torch_dtype(value: Any) -> bool:
    """Whether value is a torch.dtype, told without importing torch."""
    return type(value).__module__ == "torch" and type(value).__name__ == "dtype"


def parse(value: Any) -> Optional[int]:
    """The number of a dtype given as text, numpy dtype, torch dtype or scalar type, or None.

    Text is a name of rlk ("bf16"), of the proto ("DATA_TYPE_BF16") or of numpy and torch
    ("bfloat16"), in either case.
    """
    if isinstance(value, str):
        return _TEXT.get(value.lower())
    if is_torch_dtype(value):
        return _TEXT.get(str(value).rsplit(".", 1)[-1])
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return from_numpy(np.dtype(value))
    return None
