"""Names of the schema of TFLite: operators and element types by number, and the fields of options.

Numbers and names are those of `schema.fbs` of TensorFlow Lite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .....dialect.types import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType

_NAMES = """
    ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
    FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC
    LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH
    SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER
    BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE
    BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM
    ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE
    TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK
    LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL
    FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL
    REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND
    HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM
    BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS
    HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE
    ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU
    DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2
    UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE
    STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE
    STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE
    STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG
    STABLEHLO_MINIMUM STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT
    STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT
    STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL
    STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE
    STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT
    """
OPERATORS: tuple[str, ...] = tuple(_NAMES.split())
"""The names of operators, by number."""

ELEMENTS: tuple[str, ...] = (
    "FLOAT32", "FLOAT16", "INT32", "UINT8", "INT64", "STRING", "BOOL", "INT16", "COMPLEX64", "INT8", "FLOAT64",
    "COMPLEX128", "UINT64", "RESOURCE", "VARIANT", "UINT32", "UINT16", "INT4", "BFLOAT16", "INT2",
)  # fmt: skip
"""The names of element types, by number."""

DTYPES: Mapping[str, DType] = {
    "FLOAT32": F32, "FLOAT16": F16, "INT32": I32, "UINT8": U8, "INT64": I64, "BOOL": BOOL, "INT16": I16, "INT8": I8,
    "FLOAT64": F64, "UINT64": U64, "UINT32": U32, "UINT16": U16, "BFLOAT16": BF16, "INT4": I8,
}  # fmt: skip
"""The dtypes of the graph by the names of element types. Integers of four bits are held in i8."""

ACTIVATIONS: tuple[str, ...] = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
"""The names of activations that are part of another operator, by number."""


@dataclass(frozen=True, slots=True)
class Option:
    """A field of the options of an operator: its number, the letter of `struct` of its dtype, and its default."""

    number: int
    kind: str = "i"
    default: float = 0


_WINDOW = {
    "padding": Option(0, "b"),
    "stride_w": Option(1),
    "stride_h": Option(2),
}
_ACTIVATION = {"activation": Option(0, "b")}
_CONV = {**_WINDOW, "activation": Option(3, "b"), "dilation_w": Option(4, "i", 1), "dilation_h": Option(5, "i", 1)}
_POOL = {**_WINDOW, "filter_w": Option(3), "filter_h": Option(4), "activation": Option(5, "b")}
_REDUCTION = {"keepdims": Option(0, "?")}
_SEQUENCE = {"activation": Option(0, "b"), "cell_clip": Option(1, "f"), "proj_clip": Option(2, "f")}

OPTIONS: Mapping[str, Mapping[str, Option]] = {
    "ADD": _ACTIVATION | {"pot_scale_int16": Option(1, "?", True)},
    "SUB": _ACTIVATION | {"pot_scale_int16": Option(1, "?", True)},
    "MUL": _ACTIVATION,
    "DIV": _ACTIVATION,
    "L2_NORMALIZATION": _ACTIVATION,
    "ARG_MAX": {"output_type": Option(0, "b")},
    "ARG_MIN": {"output_type": Option(0, "b")},
    "BATCH_MATMUL": {"adj_x": Option(0, "?"), "adj_y": Option(1, "?")},
    "CALL_ONCE": {"subgraph": Option(0)},
    "CONCATENATION": {"axis": Option(0), "activation": Option(1, "b")},
    "CONV_2D": _CONV,
    "DEPTHWISE_CONV_2D": _WINDOW
    | {
        "multiplier": Option(3),
        "activation": Option(4, "b"),
        "dilation_w": Option(5, "i", 1),
        "dilation_h": Option(6, "i", 1),
    },
    "TRANSPOSE_CONV": _WINDOW | {"activation": Option(3, "b")},
    "CUMSUM": {"exclusive": Option(0, "?"), "reverse": Option(1, "?")},
    "DEPTH_TO_SPACE": {"block": Option(0)},
    "SPACE_TO_DEPTH": {"block": Option(0)},
    "FULLY_CONNECTED": _ACTIVATION | {"weights_format": Option(1, "b"), "keep_num_dims": Option(2, "?")},
    "GATHER": {"axis": Option(0), "batch_dims": Option(1)},
    "GELU": {"approximate": Option(0, "?")},
    "IF": {"then": Option(0), "else": Option(1)},
    "WHILE": {"condition": Option(0), "body": Option(1)},
    "LEAKY_RELU": {"alpha": Option(0, "f")},
    "LOCAL_RESPONSE_NORMALIZATION": {
        "radius": Option(0),
        "bias": Option(1, "f"),
        "alpha": Option(2, "f"),
        "beta": Option(3, "f"),
    },
    "MIRROR_PAD": {"mode": Option(0, "b")},
    "ONE_HOT": {"axis": Option(0)},
    "PACK": {"count": Option(0), "axis": Option(1)},
    "UNPACK": {"count": Option(0), "axis": Option(1)},
    "AVERAGE_POOL_2D": _POOL,
    "MAX_POOL_2D": _POOL,
    "L2_POOL_2D": _POOL,
    "MEAN": _REDUCTION,
    "SUM": _REDUCTION,
    "REDUCE_PROD": _REDUCTION,
    "REDUCE_MAX": _REDUCTION,
    "REDUCE_MIN": _REDUCTION,
    "REDUCE_ANY": _REDUCTION,
    "REDUCE_ALL": _REDUCTION,
    "RESIZE_BILINEAR": {"align_corners": Option(2, "?"), "half_pixel": Option(3, "?")},
    "RESIZE_NEAREST_NEIGHBOR": {"align_corners": Option(0, "?"), "half_pixel": Option(1, "?")},
    "SHAPE": {"output_type": Option(0, "b")},
    "SOFTMAX": {"beta": Option(0, "f")},
    "SPLIT": {"num": Option(0)},
    "SPLIT_V": {"num": Option(0)},
    "STRIDED_SLICE": {
        "begin_mask": Option(0),
        "end_mask": Option(1),
        "ellipsis_mask": Option(2),
        "new_axis_mask": Option(3),
        "shrink_axis_mask": Option(4),
        "offset": Option(5, "?"),
    },
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _SEQUENCE | {"time_major": Option(3, "?"), "diagonal": Option(5, "?")},
}
"""The numeric options of operators. A converter reads other options, lists and names, by the number of their field."""
