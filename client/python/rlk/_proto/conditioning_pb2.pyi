from rlk._proto import call_pb2 as _call_pb2
from rlk._proto import contract_pb2 as _contract_pb2
from rlk._proto import tensor_pb2 as _tensor_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AdalnProjection3modBackwardRequest(_message.Message):
    __slots__ = ["fold_parts", "grad_gate_mlp", "grad_gate_msa", "grad_scale_mlp", "grad_scale_msa", "grad_shift_mlp", "grad_shift_msa", "options", "temb", "weight"]
    FOLD_PARTS_FIELD_NUMBER: _ClassVar[int]
    GRAD_GATE_MLP_FIELD_NUMBER: _ClassVar[int]
    GRAD_GATE_MSA_FIELD_NUMBER: _ClassVar[int]
    GRAD_SCALE_MLP_FIELD_NUMBER: _ClassVar[int]
    GRAD_SCALE_MSA_FIELD_NUMBER: _ClassVar[int]
    GRAD_SHIFT_MLP_FIELD_NUMBER: _ClassVar[int]
    GRAD_SHIFT_MSA_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    TEMB_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    fold_parts: int
    grad_gate_mlp: _tensor_pb2.Tensor
    grad_gate_msa: _tensor_pb2.Tensor
    grad_scale_mlp: _tensor_pb2.Tensor
    grad_scale_msa: _tensor_pb2.Tensor
    grad_shift_mlp: _tensor_pb2.Tensor
    grad_shift_msa: _tensor_pb2.Tensor
    options: _call_pb2.CallOptions
    temb: _tensor_pb2.Tensor
    weight: _tensor_pb2.Tensor
    def __init__(self, temb: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., weight: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_shift_msa: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_scale_msa: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_gate_msa: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_shift_mlp: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_scale_mlp: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_gate_mlp: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., fold_parts: _Optional[int] = ..., options: _Optional[_Union[_call_pb2.CallOptions, _Mapping]] = ...) -> None: ...

class AdalnProjection3modBackwardResponse(_message.Message):
    __slots__ = ["grad_bias", "grad_temb", "grad_weight", "report"]
    GRAD_BIAS_FIELD_NUMBER: _ClassVar[int]
    GRAD_TEMB_FIELD_NUMBER: _ClassVar[int]
    GRAD_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    grad_bias: _tensor_pb2.Tensor
    grad_temb: _tensor_pb2.Tensor
    grad_weight: _tensor_pb2.Tensor
    report: _call_pb2.CallReport
    def __init__(self, grad_temb: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_weight: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_bias: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., report: _Optional[_Union[_call_pb2.CallReport, _Mapping]] = ...) -> None: ...

class AdalnProjection3modForwardRequest(_message.Message):
    __slots__ = ["bias", "fold_parts", "options", "temb", "weight"]
    BIAS_FIELD_NUMBER: _ClassVar[int]
    FOLD_PARTS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    TEMB_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    bias: _tensor_pb2.Tensor
    fold_parts: int
    options: _call_pb2.CallOptions
    temb: _tensor_pb2.Tensor
    weight: _tensor_pb2.Tensor
    def __init__(self, temb: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., weight: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., bias: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., fold_parts: _Optional[int] = ..., options: _Optional[_Union[_call_pb2.CallOptions, _Mapping]] = ...) -> None: ...

class AdalnProjection3modForwardResponse(_message.Message):
    __slots__ = ["gate_mlp", "gate_msa", "report", "scale_mlp", "scale_msa", "shift_mlp", "shift_msa"]
    GATE_MLP_FIELD_NUMBER: _ClassVar[int]
    GATE_MSA_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    SCALE_MLP_FIELD_NUMBER: _ClassVar[int]
    SCALE_MSA_FIELD_NUMBER: _ClassVar[int]
    SHIFT_MLP_FIELD_NUMBER: _ClassVar[int]
    SHIFT_MSA_FIELD_NUMBER: _ClassVar[int]
    gate_mlp: _tensor_pb2.Tensor
    gate_msa: _tensor_pb2.Tensor
    report: _call_pb2.CallReport
    scale_mlp: _tensor_pb2.Tensor
    scale_msa: _tensor_pb2.Tensor
    shift_mlp: _tensor_pb2.Tensor
    shift_msa: _tensor_pb2.Tensor
    def __init__(self, shift_msa: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., scale_msa: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., gate_msa: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., shift_mlp: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., scale_mlp: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., gate_mlp: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., report: _Optional[_Union[_call_pb2.CallReport, _Mapping]] = ...) -> None: ...

class AdalnProjection3modForwardTableRequest(_message.Message):
    __slots__ = ["bias", "fold_parts", "options", "temb", "weight"]
    BIAS_FIELD_NUMBER: _ClassVar[int]
    FOLD_PARTS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    TEMB_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    bias: _tensor_pb2.Tensor
    fold_parts: int
    options: _call_pb2.CallOptions
    temb: _tensor_pb2.Tensor
    weight: _tensor_pb2.Tensor
    def __init__(self, temb: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., weight: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., bias: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., fold_parts: _Optional[int] = ..., options: _Optional[_Union[_call_pb2.CallOptions, _Mapping]] = ...) -> None: ...

class AdalnProjection3modForwardTableResponse(_message.Message):
    __slots__ = ["report", "table"]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    report: _call_pb2.CallReport
    table: _tensor_pb2.Tensor
    def __init__(self, table: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., report: _Optional[_Union[_call_pb2.CallReport, _Mapping]] = ...) -> None: ...

class TimestepMlpFp32BackwardRequest(_message.Message):
    __slots__ = ["b1", "grad_y", "options", "pre", "w1", "w2", "x"]
    B1_FIELD_NUMBER: _ClassVar[int]
    GRAD_Y_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    PRE_FIELD_NUMBER: _ClassVar[int]
    W1_FIELD_NUMBER: _ClassVar[int]
    W2_FIELD_NUMBER: _ClassVar[int]
    X_FIELD_NUMBER: _ClassVar[int]
    b1: _tensor_pb2.Tensor
    grad_y: _tensor_pb2.Tensor
    options: _call_pb2.CallOptions
    pre: _tensor_pb2.Tensor
    w1: _tensor_pb2.Tensor
    w2: _tensor_pb2.Tensor
    x: _tensor_pb2.Tensor
    def __init__(self, x: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., w1: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., b1: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., w2: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_y: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., pre: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., options: _Optional[_Union[_call_pb2.CallOptions, _Mapping]] = ...) -> None: ...

class TimestepMlpFp32BackwardResponse(_message.Message):
    __slots__ = ["grad_b1", "grad_b2", "grad_w1", "grad_w2", "grad_x", "report"]
    GRAD_B1_FIELD_NUMBER: _ClassVar[int]
    GRAD_B2_FIELD_NUMBER: _ClassVar[int]
    GRAD_W1_FIELD_NUMBER: _ClassVar[int]
    GRAD_W2_FIELD_NUMBER: _ClassVar[int]
    GRAD_X_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    grad_b1: _tensor_pb2.Tensor
    grad_b2: _tensor_pb2.Tensor
    grad_w1: _tensor_pb2.Tensor
    grad_w2: _tensor_pb2.Tensor
    grad_x: _tensor_pb2.Tensor
    report: _call_pb2.CallReport
    def __init__(self, grad_x: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_w1: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_b1: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_w2: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_b2: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., report: _Optional[_Union[_call_pb2.CallReport, _Mapping]] = ...) -> None: ...

class TimestepMlpFp32ForwardRequest(_message.Message):
    __slots__ = ["b1", "b2", "options", "w1", "w2", "x"]
    B1_FIELD_NUMBER: _ClassVar[int]
    B2_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    W1_FIELD_NUMBER: _ClassVar[int]
    W2_FIELD_NUMBER: _ClassVar[int]
    X_FIELD_NUMBER: _ClassVar[int]
    b1: _tensor_pb2.Tensor
    b2: _tensor_pb2.Tensor
    options: _call_pb2.CallOptions
    w1: _tensor_pb2.Tensor
    w2: _tensor_pb2.Tensor
    x: _tensor_pb2.Tensor
    def __init__(self, x: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., w1: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., b1: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., w2: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., b2: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., options: _Optional[_Union[_call_pb2.CallOptions, _Mapping]] = ...) -> None: ...

class TimestepMlpFp32ForwardResponse(_message.Message):
    __slots__ = ["pre", "report", "y"]
    PRE_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    pre: _tensor_pb2.Tensor
    report: _call_pb2.CallReport
    y: _tensor_pb2.Tensor
    def __init__(self, y: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., pre: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., report: _Optional[_Union[_call_pb2.CallReport, _Mapping]] = ...) -> None: ...

class TimestepSinusoidH3BackwardRequest(_message.Message):
    __slots__ = ["embedding", "grad_embedding", "max_period", "options", "timestep_dtype"]
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    GRAD_EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    MAX_PERIOD_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    TIMESTEP_DTYPE_FIELD_NUMBER: _ClassVar[int]
    embedding: _tensor_pb2.Tensor
    grad_embedding: _tensor_pb2.Tensor
    max_period: float
    options: _call_pb2.CallOptions
    timestep_dtype: _tensor_pb2.DataType
    def __init__(self, grad_embedding: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., embedding: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., max_period: _Optional[float] = ..., timestep_dtype: _Optional[_Union[_tensor_pb2.DataType, str]] = ..., options: _Optional[_Union[_call_pb2.CallOptions, _Mapping]] = ...) -> None: ...

class TimestepSinusoidH3BackwardResponse(_message.Message):
    __slots__ = ["grad_timestep", "report"]
    GRAD_TIMESTEP_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    grad_timestep: _tensor_pb2.Tensor
    report: _call_pb2.CallReport
    def __init__(self, grad_timestep: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., report: _Optional[_Union[_call_pb2.CallReport, _Mapping]] = ...) -> None: ...

class TimestepSinusoidH3ForwardRequest(_message.Message):
    __slots__ = ["max_period", "num_channels", "options", "timestep"]
    MAX_PERIOD_FIELD_NUMBER: _ClassVar[int]
    NUM_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    TIMESTEP_FIELD_NUMBER: _ClassVar[int]
    max_period: float
    num_channels: int
    options: _call_pb2.CallOptions
    timestep: _tensor_pb2.Tensor
    def __init__(self, timestep: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., num_channels: _Optional[int] = ..., max_period: _Optional[float] = ..., options: _Optional[_Union[_call_pb2.CallOptions, _Mapping]] = ...) -> None: ...

class TimestepSinusoidH3ForwardResponse(_message.Message):
    __slots__ = ["embedding", "report"]
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    embedding: _tensor_pb2.Tensor
    report: _call_pb2.CallReport
    def __init__(self, embedding: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., report: _Optional[_Union[_call_pb2.CallReport, _Mapping]] = ...) -> None: ...
