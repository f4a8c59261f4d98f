from rlk._proto import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ChainJudgment(_message.Message):
    __slots__ = ["execution_dtype", "failure", "passed", "values"]
    EXECUTION_DTYPE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    execution_dtype: _tensor_pb2.DataType
    failure: str
    passed: bool
    values: _containers.RepeatedCompositeFieldContainer[ChainValue]
    def __init__(self, passed: bool = ..., execution_dtype: _Optional[_Union[_tensor_pb2.DataType, str]] = ..., values: _Optional[_Iterable[_Union[ChainValue, _Mapping]]] = ..., failure: _Optional[str] = ...) -> None: ...

class ChainValue(_message.Message):
    __slots__ = ["name", "passed", "threshold", "value"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    passed: bool
    threshold: float
    value: float
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ..., threshold: _Optional[float] = ..., passed: bool = ...) -> None: ...

class ComparePolicyRequest(_message.Message):
    __slots__ = ["cu_seqlens", "mask", "options", "rollout", "rollout_logits", "trainer", "trainer_logits"]
    CU_SEQLENS_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    ROLLOUT_LOGITS_FIELD_NUMBER: _ClassVar[int]
    TRAINER_FIELD_NUMBER: _ClassVar[int]
    TRAINER_LOGITS_FIELD_NUMBER: _ClassVar[int]
    cu_seqlens: _tensor_pb2.Tensor
    mask: _tensor_pb2.Tensor
    options: PolicyOptions
    rollout: _tensor_pb2.Tensor
    rollout_logits: _tensor_pb2.Tensor
    trainer: _tensor_pb2.Tensor
    trainer_logits: _tensor_pb2.Tensor
    def __init__(self, rollout: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., trainer: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., mask: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., cu_seqlens: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., options: _Optional[_Union[PolicyOptions, _Mapping]] = ..., rollout_logits: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., trainer_logits: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class ComparePolicyResponse(_message.Message):
    __slots__ = ["comparison"]
    COMPARISON_FIELD_NUMBER: _ClassVar[int]
    comparison: PolicyComparison
    def __init__(self, comparison: _Optional[_Union[PolicyComparison, _Mapping]] = ...) -> None: ...

class DistributionComparison(_message.Message):
    __slots__ = ["flip_margin", "greedy_flips", "kl", "not_finite", "tokens"]
    FLIP_MARGIN_FIELD_NUMBER: _ClassVar[int]
    GREEDY_FLIPS_FIELD_NUMBER: _ClassVar[int]
    KL_FIELD_NUMBER: _ClassVar[int]
    NOT_FINITE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    flip_margin: Summary
    greedy_flips: int
    kl: Summary
    not_finite: int
    tokens: int
    def __init__(self, kl: _Optional[_Union[Summary, _Mapping]] = ..., greedy_flips: _Optional[int] = ..., flip_margin: _Optional[_Union[Summary, _Mapping]] = ..., tokens: _Optional[int] = ..., not_finite: _Optional[int] = ...) -> None: ...

class ImportanceRatios(_message.Message):
    __slots__ = ["above", "above_cap", "below", "cap", "effective_sample_size", "log_sequence_sum", "outside", "sequence_mean", "sequence_sum", "token"]
    ABOVE_CAP_FIELD_NUMBER: _ClassVar[int]
    ABOVE_FIELD_NUMBER: _ClassVar[int]
    BELOW_FIELD_NUMBER: _ClassVar[int]
    CAP_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_SAMPLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    LOG_SEQUENCE_SUM_FIELD_NUMBER: _ClassVar[int]
    OUTSIDE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_MEAN_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_SUM_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    above: float
    above_cap: float
    below: float
    cap: float
    effective_sample_size: float
    log_sequence_sum: Summary
    outside: float
    sequence_mean: Summary
    sequence_sum: Summary
    token: Summary
    def __init__(self, token: _Optional[_Union[Summary, _Mapping]] = ..., sequence_sum: _Optional[_Union[Summary, _Mapping]] = ..., sequence_mean: _Optional[_Union[Summary, _Mapping]] = ..., log_sequence_sum: _Optional[_Union[Summary, _Mapping]] = ..., effective_sample_size: _Optional[float] = ..., below: _Optional[float] = ..., above: _Optional[float] = ..., outside: _Optional[float] = ..., above_cap: _Optional[float] = ..., cap: _Optional[float] = ...) -> None: ...

class KlEstimates(_message.Message):
    __slots__ = ["chi2_sequence", "chi2_token", "k1", "k2", "k3"]
    CHI2_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CHI2_TOKEN_FIELD_NUMBER: _ClassVar[int]
    K1_FIELD_NUMBER: _ClassVar[int]
    K2_FIELD_NUMBER: _ClassVar[int]
    K3_FIELD_NUMBER: _ClassVar[int]
    chi2_sequence: float
    chi2_token: float
    k1: float
    k2: float
    k3: float
    def __init__(self, k1: _Optional[float] = ..., k2: _Optional[float] = ..., k3: _Optional[float] = ..., chi2_token: _Optional[float] = ..., chi2_sequence: _Optional[float] = ...) -> None: ...

class LogprobDifference(_message.Message):
    __slots__ = ["max_abs", "mean", "mean_abs", "mismatched", "p50_abs", "p99_abs", "probability_abs"]
    MAX_ABS_FIELD_NUMBER: _ClassVar[int]
    MEAN_ABS_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    MISMATCHED_FIELD_NUMBER: _ClassVar[int]
    P50_ABS_FIELD_NUMBER: _ClassVar[int]
    P99_ABS_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_ABS_FIELD_NUMBER: _ClassVar[int]
    max_abs: float
    mean: float
    mean_abs: float
    mismatched: int
    p50_abs: float
    p99_abs: float
    probability_abs: Summary
    def __init__(self, mean_abs: _Optional[float] = ..., max_abs: _Optional[float] = ..., p50_abs: _Optional[float] = ..., p99_abs: _Optional[float] = ..., mean: _Optional[float] = ..., probability_abs: _Optional[_Union[Summary, _Mapping]] = ..., mismatched: _Optional[int] = ...) -> None: ...

class Perplexity(_message.Message):
    __slots__ = ["log_abs_difference", "log_difference", "ratio", "rollout", "trainer"]
    LOG_ABS_DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    LOG_DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    RATIO_FIELD_NUMBER: _ClassVar[int]
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    TRAINER_FIELD_NUMBER: _ClassVar[int]
    log_abs_difference: float
    log_difference: Summary
    ratio: float
    rollout: float
    trainer: float
    def __init__(self, rollout: _Optional[float] = ..., trainer: _Optional[float] = ..., ratio: _Optional[float] = ..., log_difference: _Optional[_Union[Summary, _Mapping]] = ..., log_abs_difference: _Optional[float] = ...) -> None: ...

class PolicyComparison(_message.Message):
    __slots__ = ["chain", "difference", "distribution", "empty_sequences", "kl", "masked", "metrics", "not_finite", "perplexity", "ratios", "rollout_support", "sequences", "support_note", "tokens", "trainer_support", "worst"]
    class MetricsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    DISTRIBUTION_FIELD_NUMBER: _ClassVar[int]
    EMPTY_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    KL_FIELD_NUMBER: _ClassVar[int]
    MASKED_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    NOT_FINITE_FIELD_NUMBER: _ClassVar[int]
    PERPLEXITY_FIELD_NUMBER: _ClassVar[int]
    RATIOS_FIELD_NUMBER: _ClassVar[int]
    ROLLOUT_SUPPORT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    SUPPORT_NOTE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TRAINER_SUPPORT_FIELD_NUMBER: _ClassVar[int]
    WORST_FIELD_NUMBER: _ClassVar[int]
    chain: ChainJudgment
    difference: LogprobDifference
    distribution: DistributionComparison
    empty_sequences: int
    kl: KlEstimates
    masked: int
    metrics: _containers.ScalarMap[str, float]
    not_finite: int
    perplexity: Perplexity
    ratios: ImportanceRatios
    rollout_support: PolicySupport
    sequences: int
    support_note: str
    tokens: int
    trainer_support: PolicySupport
    worst: _containers.RepeatedCompositeFieldContainer[PolicyToken]
    def __init__(self, tokens: _Optional[int] = ..., masked: _Optional[int] = ..., sequences: _Optional[int] = ..., empty_sequences: _Optional[int] = ..., not_finite: _Optional[int] = ..., difference: _Optional[_Union[LogprobDifference, _Mapping]] = ..., kl: _Optional[_Union[KlEstimates, _Mapping]] = ..., perplexity: _Optional[_Union[Perplexity, _Mapping]] = ..., ratios: _Optional[_Union[ImportanceRatios, _Mapping]] = ..., worst: _Optional[_Iterable[_Union[PolicyToken, _Mapping]]] = ..., chain: _Optional[_Union[ChainJudgment, _Mapping]] = ..., distribution: _Optional[_Union[DistributionComparison, _Mapping]] = ..., rollout_support: _Optional[_Union[PolicySupport, _Mapping]] = ..., trainer_support: _Optional[_Union[PolicySupport, _Mapping]] = ..., support_note: _Optional[str] = ..., metrics: _Optional[_Mapping[str, float]] = ...) -> None: ...

class PolicyOptions(_message.Message):
    __slots__ = ["execution_dtype", "ratio_cap", "rollout_support", "tokens_max", "trainer_support"]
    EXECUTION_DTYPE_FIELD_NUMBER: _ClassVar[int]
    RATIO_CAP_FIELD_NUMBER: _ClassVar[int]
    ROLLOUT_SUPPORT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_MAX_FIELD_NUMBER: _ClassVar[int]
    TRAINER_SUPPORT_FIELD_NUMBER: _ClassVar[int]
    execution_dtype: _tensor_pb2.DataType
    ratio_cap: float
    rollout_support: PolicySupport
    tokens_max: int
    trainer_support: PolicySupport
    def __init__(self, execution_dtype: _Optional[_Union[_tensor_pb2.DataType, str]] = ..., ratio_cap: _Optional[float] = ..., tokens_max: _Optional[int] = ..., rollout_support: _Optional[_Union[PolicySupport, _Mapping]] = ..., trainer_support: _Optional[_Union[PolicySupport, _Mapping]] = ...) -> None: ...

class PolicySupport(_message.Message):
    __slots__ = ["after_processors", "softcap_applications", "temperature", "top_k", "top_p"]
    AFTER_PROCESSORS_FIELD_NUMBER: _ClassVar[int]
    SOFTCAP_APPLICATIONS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    after_processors: bool
    softcap_applications: int
    temperature: float
    top_k: int
    top_p: float
    def __init__(self, temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ..., after_processors: bool = ..., softcap_applications: _Optional[int] = ...) -> None: ...

class PolicyToken(_message.Message):
    __slots__ = ["difference", "flat_index", "position", "ratio", "rollout", "sequence", "trainer"]
    DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    FLAT_INDEX_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    RATIO_FIELD_NUMBER: _ClassVar[int]
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TRAINER_FIELD_NUMBER: _ClassVar[int]
    difference: float
    flat_index: int
    position: int
    ratio: float
    rollout: float
    sequence: int
    trainer: float
    def __init__(self, flat_index: _Optional[int] = ..., sequence: _Optional[int] = ..., position: _Optional[int] = ..., rollout: _Optional[float] = ..., trainer: _Optional[float] = ..., difference: _Optional[float] = ..., ratio: _Optional[float] = ...) -> None: ...

class Summary(_message.Message):
    __slots__ = ["max", "mean", "min", "standard_deviation"]
    MAX_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    STANDARD_DEVIATION_FIELD_NUMBER: _ClassVar[int]
    max: float
    mean: float
    min: float
    standard_deviation: float
    def __init__(self, min: _Optional[float] = ..., mean: _Optional[float] = ..., max: _Optional[float] = ..., standard_deviation: _Optional[float] = ...) -> None: ...
