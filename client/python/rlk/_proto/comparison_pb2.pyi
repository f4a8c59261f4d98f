from rlk._proto import contract_pb2 as _contract_pb2
from rlk._proto import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
DIFFERENCE_BITS: Difference
DIFFERENCE_DTYPE: Difference
DIFFERENCE_NOTHING: Difference
DIFFERENCE_SHAPE: Difference
DIFFERENCE_UNSPECIFIED: Difference
JUDGMENT_ACCURACY: Judgment
JUDGMENT_INVARIANCE: Judgment
JUDGMENT_PARITY: Judgment
JUDGMENT_UNSPECIFIED: Judgment
TRIAGE_CLASS_BATCH_DEPENDENT: TriageClass
TRIAGE_CLASS_CHANNEL_FACTOR: TriageClass
TRIAGE_CLASS_CONSTANT_FACTOR: TriageClass
TRIAGE_CLASS_CONSTANT_OFFSET: TriageClass
TRIAGE_CLASS_ELEMENTWISE_FUNCTION: TriageClass
TRIAGE_CLASS_FROM_POSITION: TriageClass
TRIAGE_CLASS_INCOMPARABLE: TriageClass
TRIAGE_CLASS_ISOLATED_BITS: TriageClass
TRIAGE_CLASS_NAN_PAYLOAD: TriageClass
TRIAGE_CLASS_NONE: TriageClass
TRIAGE_CLASS_NONFINITE: TriageClass
TRIAGE_CLASS_NOT_REPEATABLE: TriageClass
TRIAGE_CLASS_REDUCTION_ORDER: TriageClass
TRIAGE_CLASS_ROUNDING_PLACE: TriageClass
TRIAGE_CLASS_ROWS_PERMUTED: TriageClass
TRIAGE_CLASS_TILE_EDGE: TriageClass
TRIAGE_CLASS_TRUNCATION: TriageClass
TRIAGE_CLASS_UNCLASSIFIED: TriageClass
TRIAGE_CLASS_UNSPECIFIED: TriageClass
TRIAGE_CLASS_UNWRITTEN: TriageClass
TRIAGE_CLASS_ZERO_SIGN: TriageClass

class AxisCoordinate(_message.Message):
    __slots__ = ["axis", "index"]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    axis: str
    index: int
    def __init__(self, axis: _Optional[str] = ..., index: _Optional[int] = ...) -> None: ...

class ComparedTensor(_message.Message):
    __slots__ = ["canonical_nan_digest", "digest", "dtype", "nan_payloads", "role", "shape"]
    CANONICAL_NAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    NAN_PAYLOADS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    canonical_nan_digest: str
    digest: str
    dtype: _tensor_pb2.DataType
    nan_payloads: bool
    role: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, role: _Optional[str] = ..., dtype: _Optional[_Union[_tensor_pb2.DataType, str]] = ..., shape: _Optional[_Iterable[int]] = ..., digest: _Optional[str] = ..., canonical_nan_digest: _Optional[str] = ..., nan_payloads: bool = ...) -> None: ...

class Comparison(_message.Message):
    __slots__ = ["compared_on", "counts", "difference", "first_mismatch", "judgment", "left", "magnitude", "passed", "right", "rows", "rule", "triage", "ulp"]
    COMPARED_ON_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    FIRST_MISMATCH_FIELD_NUMBER: _ClassVar[int]
    JUDGMENT_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    MAGNITUDE_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    RIGHT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    TRIAGE_FIELD_NUMBER: _ClassVar[int]
    ULP_FIELD_NUMBER: _ClassVar[int]
    compared_on: str
    counts: ComparisonCounts
    difference: Difference
    first_mismatch: Mismatch
    judgment: Judgment
    left: ComparedTensor
    magnitude: ErrorMagnitude
    passed: bool
    right: ComparedTensor
    rows: ComparisonRows
    rule: PassRule
    triage: Triage
    ulp: UlpHistogram
    def __init__(self, judgment: _Optional[_Union[Judgment, str]] = ..., passed: bool = ..., difference: _Optional[_Union[Difference, str]] = ..., left: _Optional[_Union[ComparedTensor, _Mapping]] = ..., right: _Optional[_Union[ComparedTensor, _Mapping]] = ..., counts: _Optional[_Union[ComparisonCounts, _Mapping]] = ..., first_mismatch: _Optional[_Union[Mismatch, _Mapping]] = ..., rows: _Optional[_Union[ComparisonRows, _Mapping]] = ..., ulp: _Optional[_Union[UlpHistogram, _Mapping]] = ..., magnitude: _Optional[_Union[ErrorMagnitude, _Mapping]] = ..., rule: _Optional[_Union[PassRule, _Mapping]] = ..., triage: _Optional[_Union[Triage, _Mapping]] = ..., compared_on: _Optional[str] = ...) -> None: ...

class ComparisonCounts(_message.Message):
    __slots__ = ["compared", "infinite_equal", "infinite_left_only", "infinite_right_only", "infinite_sign", "mismatched", "nan_equal", "nan_left_only", "nan_payload", "nan_right_only", "single_bit", "unwritten_equal", "unwritten_left", "unwritten_right", "zero_sign"]
    COMPARED_FIELD_NUMBER: _ClassVar[int]
    INFINITE_EQUAL_FIELD_NUMBER: _ClassVar[int]
    INFINITE_LEFT_ONLY_FIELD_NUMBER: _ClassVar[int]
    INFINITE_RIGHT_ONLY_FIELD_NUMBER: _ClassVar[int]
    INFINITE_SIGN_FIELD_NUMBER: _ClassVar[int]
    MISMATCHED_FIELD_NUMBER: _ClassVar[int]
    NAN_EQUAL_FIELD_NUMBER: _ClassVar[int]
    NAN_LEFT_ONLY_FIELD_NUMBER: _ClassVar[int]
    NAN_PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    NAN_RIGHT_ONLY_FIELD_NUMBER: _ClassVar[int]
    SINGLE_BIT_FIELD_NUMBER: _ClassVar[int]
    UNWRITTEN_EQUAL_FIELD_NUMBER: _ClassVar[int]
    UNWRITTEN_LEFT_FIELD_NUMBER: _ClassVar[int]
    UNWRITTEN_RIGHT_FIELD_NUMBER: _ClassVar[int]
    ZERO_SIGN_FIELD_NUMBER: _ClassVar[int]
    compared: int
    infinite_equal: int
    infinite_left_only: int
    infinite_right_only: int
    infinite_sign: int
    mismatched: int
    nan_equal: int
    nan_left_only: int
    nan_payload: int
    nan_right_only: int
    single_bit: int
    unwritten_equal: int
    unwritten_left: int
    unwritten_right: int
    zero_sign: int
    def __init__(self, compared: _Optional[int] = ..., mismatched: _Optional[int] = ..., zero_sign: _Optional[int] = ..., nan_left_only: _Optional[int] = ..., nan_right_only: _Optional[int] = ..., nan_payload: _Optional[int] = ..., infinite_left_only: _Optional[int] = ..., infinite_right_only: _Optional[int] = ..., infinite_sign: _Optional[int] = ..., unwritten_left: _Optional[int] = ..., unwritten_right: _Optional[int] = ..., single_bit: _Optional[int] = ..., nan_equal: _Optional[int] = ..., infinite_equal: _Optional[int] = ..., unwritten_equal: _Optional[int] = ...) -> None: ...

class ComparisonOptions(_message.Message):
    __slots__ = ["axes", "judgment", "relative_floor", "rows_max", "tolerance", "without_digests"]
    AXES_FIELD_NUMBER: _ClassVar[int]
    JUDGMENT_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_FLOOR_FIELD_NUMBER: _ClassVar[int]
    ROWS_MAX_FIELD_NUMBER: _ClassVar[int]
    TOLERANCE_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    axes: _containers.RepeatedScalarFieldContainer[str]
    judgment: Judgment
    relative_floor: float
    rows_max: int
    tolerance: ToleranceRow
    without_digests: bool
    def __init__(self, judgment: _Optional[_Union[Judgment, str]] = ..., tolerance: _Optional[_Union[ToleranceRow, _Mapping]] = ..., axes: _Optional[_Iterable[str]] = ..., relative_floor: _Optional[float] = ..., rows_max: _Optional[int] = ..., without_digests: bool = ...) -> None: ...

class ComparisonRows(_message.Message):
    __slots__ = ["counted", "first", "first_column", "last", "last_column", "mismatched", "rows", "worst"]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    FIRST_COLUMN_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_COLUMN_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    MISMATCHED_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    WORST_FIELD_NUMBER: _ClassVar[int]
    counted: bool
    first: int
    first_column: int
    last: int
    last_column: int
    mismatched: int
    rows: int
    worst: _containers.RepeatedCompositeFieldContainer[RowCount]
    def __init__(self, rows: _Optional[int] = ..., mismatched: _Optional[int] = ..., first: _Optional[int] = ..., last: _Optional[int] = ..., first_column: _Optional[int] = ..., last_column: _Optional[int] = ..., worst: _Optional[_Iterable[_Union[RowCount, _Mapping]]] = ..., counted: bool = ...) -> None: ...

class ErrorMagnitude(_message.Message):
    __slots__ = ["cosine", "elements", "magnitude_mean", "max_abs", "max_abs_left", "max_abs_over_max_right", "max_abs_right", "max_rel", "mean_abs", "pearson", "relative_floor", "root_mean_square", "root_mean_square_right", "signed_mean"]
    COSINE_FIELD_NUMBER: _ClassVar[int]
    ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    MAGNITUDE_MEAN_FIELD_NUMBER: _ClassVar[int]
    MAX_ABS_FIELD_NUMBER: _ClassVar[int]
    MAX_ABS_LEFT_FIELD_NUMBER: _ClassVar[int]
    MAX_ABS_OVER_MAX_RIGHT_FIELD_NUMBER: _ClassVar[int]
    MAX_ABS_RIGHT_FIELD_NUMBER: _ClassVar[int]
    MAX_REL_FIELD_NUMBER: _ClassVar[int]
    MEAN_ABS_FIELD_NUMBER: _ClassVar[int]
    PEARSON_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_FLOOR_FIELD_NUMBER: _ClassVar[int]
    ROOT_MEAN_SQUARE_FIELD_NUMBER: _ClassVar[int]
    ROOT_MEAN_SQUARE_RIGHT_FIELD_NUMBER: _ClassVar[int]
    SIGNED_MEAN_FIELD_NUMBER: _ClassVar[int]
    cosine: float
    elements: int
    magnitude_mean: float
    max_abs: float
    max_abs_left: float
    max_abs_over_max_right: float
    max_abs_right: float
    max_rel: float
    mean_abs: float
    pearson: float
    relative_floor: float
    root_mean_square: float
    root_mean_square_right: float
    signed_mean: float
    def __init__(self, elements: _Optional[int] = ..., max_abs: _Optional[float] = ..., max_rel: _Optional[float] = ..., relative_floor: _Optional[float] = ..., max_abs_left: _Optional[float] = ..., max_abs_right: _Optional[float] = ..., max_abs_over_max_right: _Optional[float] = ..., mean_abs: _Optional[float] = ..., root_mean_square: _Optional[float] = ..., signed_mean: _Optional[float] = ..., magnitude_mean: _Optional[float] = ..., cosine: _Optional[float] = ..., pearson: _Optional[float] = ..., root_mean_square_right: _Optional[float] = ...) -> None: ...

class Mismatch(_message.Message):
    __slots__ = ["coordinates", "flat_index", "left_bits", "left_value", "right_bits", "right_value"]
    COORDINATES_FIELD_NUMBER: _ClassVar[int]
    FLAT_INDEX_FIELD_NUMBER: _ClassVar[int]
    LEFT_BITS_FIELD_NUMBER: _ClassVar[int]
    LEFT_VALUE_FIELD_NUMBER: _ClassVar[int]
    RIGHT_BITS_FIELD_NUMBER: _ClassVar[int]
    RIGHT_VALUE_FIELD_NUMBER: _ClassVar[int]
    coordinates: _containers.RepeatedCompositeFieldContainer[AxisCoordinate]
    flat_index: int
    left_bits: str
    left_value: float
    right_bits: str
    right_value: float
    def __init__(self, flat_index: _Optional[int] = ..., coordinates: _Optional[_Iterable[_Union[AxisCoordinate, _Mapping]]] = ..., left_bits: _Optional[str] = ..., right_bits: _Optional[str] = ..., left_value: _Optional[float] = ..., right_value: _Optional[float] = ...) -> None: ...

class PassRule(_message.Message):
    __slots__ = ["atol", "bitwise", "outside", "row", "rtol", "tolerance_contract_sha256", "tolerance_contract_version", "worst_excess", "worst_index"]
    ATOL_FIELD_NUMBER: _ClassVar[int]
    BITWISE_FIELD_NUMBER: _ClassVar[int]
    OUTSIDE_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    RTOL_FIELD_NUMBER: _ClassVar[int]
    TOLERANCE_CONTRACT_SHA256_FIELD_NUMBER: _ClassVar[int]
    TOLERANCE_CONTRACT_VERSION_FIELD_NUMBER: _ClassVar[int]
    WORST_EXCESS_FIELD_NUMBER: _ClassVar[int]
    WORST_INDEX_FIELD_NUMBER: _ClassVar[int]
    atol: float
    bitwise: bool
    outside: int
    row: str
    rtol: float
    tolerance_contract_sha256: str
    tolerance_contract_version: str
    worst_excess: float
    worst_index: int
    def __init__(self, bitwise: bool = ..., row: _Optional[str] = ..., tolerance_contract_version: _Optional[str] = ..., tolerance_contract_sha256: _Optional[str] = ..., atol: _Optional[float] = ..., rtol: _Optional[float] = ..., outside: _Optional[int] = ..., worst_excess: _Optional[float] = ..., worst_index: _Optional[int] = ...) -> None: ...

class RowCount(_message.Message):
    __slots__ = ["mismatched", "row"]
    MISMATCHED_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    mismatched: int
    row: int
    def __init__(self, row: _Optional[int] = ..., mismatched: _Optional[int] = ...) -> None: ...

class ToleranceRow(_message.Message):
    __slots__ = ["gradient", "op_class"]
    GRADIENT_FIELD_NUMBER: _ClassVar[int]
    OP_CLASS_FIELD_NUMBER: _ClassVar[int]
    gradient: bool
    op_class: _contract_pb2.OpClass
    def __init__(self, op_class: _Optional[_Union[_contract_pb2.OpClass, str]] = ..., gradient: bool = ...) -> None: ...

class Triage(_message.Message):
    __slots__ = ["hint", "triage_class"]
    HINT_FIELD_NUMBER: _ClassVar[int]
    TRIAGE_CLASS_FIELD_NUMBER: _ClassVar[int]
    hint: str
    triage_class: TriageClass
    def __init__(self, triage_class: _Optional[_Union[TriageClass, str]] = ..., hint: _Optional[str] = ...) -> None: ...

class UlpBucket(_message.Message):
    __slots__ = ["at_least", "at_most", "elements"]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    AT_MOST_FIELD_NUMBER: _ClassVar[int]
    ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    at_least: int
    at_most: int
    elements: int
    def __init__(self, at_least: _Optional[int] = ..., at_most: _Optional[int] = ..., elements: _Optional[int] = ...) -> None: ...

class UlpHistogram(_message.Message):
    __slots__ = ["buckets", "max", "not_finite", "sign_differs"]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    NOT_FINITE_FIELD_NUMBER: _ClassVar[int]
    SIGN_DIFFERS_FIELD_NUMBER: _ClassVar[int]
    buckets: _containers.RepeatedCompositeFieldContainer[UlpBucket]
    max: int
    not_finite: int
    sign_differs: int
    def __init__(self, max: _Optional[int] = ..., buckets: _Optional[_Iterable[_Union[UlpBucket, _Mapping]]] = ..., sign_differs: _Optional[int] = ..., not_finite: _Optional[int] = ...) -> None: ...

class Judgment(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class Difference(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class TriageClass(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
