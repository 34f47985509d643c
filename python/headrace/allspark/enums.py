"""The enumerations of DashInfer's engine, in its spelling and with its values."""

from __future__ import annotations

from enum import Enum

from headrace.named_enum import NamedIntEnum

__all__ = [
    "AsCacheMode",
    "AsEvictionStrategy",
    "AsMHAPrefill",
    "AsSchedulingStrategy",
    "AsStatus",
    "GenerateRequestStatus",
    "RoPEScaleMethod",
    "TargetDevice",
    "VocabType",
]


class AsStatus(NamedIntEnum):
    """What a call of the engine came to. ALLSPARK_SUCCESS is 0."""

    ALLSPARK_SUCCESS = 0
    ALLSPARK_UNKNOWN_ERROR = 1
    ALLSPARK_PARAM_ERROR = 2
    ALLSPARK_IO_ERROR = 3
    ALLSPARK_MEMORY_ERROR = 4
    ALLSPARK_RUNTIME_ERROR = 5
    ALLSPARK_EXCEED_LIMIT_ERROR = 7
    ALLSPARK_ALLSPARK_INVALID_CALL_ERROR = 8  # the original's spelling
    ALLSPARK_INVALID_CALL_ERROR = 8
    ALLSPARK_EMPTY_REQUEST = 9
    ALLSPARK_ILLEGAL_REQUEST_ID = 10
    ALLSPARK_CACHE_MEMORY_OUT = 11
    ALLSPARK_REQUEST_DENIED = 12
    ALLSPARK_CHUNK_PREFILL = 14
    ALLSPARK_DEPRECATED = 20
    ALLSPARK_LORA_NUM_EXCEED_LIMIT_ERROR = 21
    ALLSPARK_LORA_RANK_EXCEED_LIMIT_ERROR = 22
    ALLSPARK_LORA_NOT_FOUND = 23
    ALLSPARK_LORA_ALREADY_LOADED = 24
    ALLSPARK_LORA_IN_USE = 25
    ALLSPARK_STREAMING = 200


class GenerateRequestStatus(NamedIntEnum):
    """Init -> Generating -> one of the others. ContextFinished is never shown."""

    Init = 0
    ContextFinished = 1
    Generating = 2
    GenerateFinished = 3
    GenerateInterrupted = 4
    InternalError = 5  # the request failed; the log says why


class AsCacheMode(NamedIntEnum):
    AsCacheDefault = 0
    AsCacheQuantI8 = 1
    AsCacheQuantU4 = 2


class AsMHAPrefill(NamedIntEnum):
    AsPrefillDefault = 0
    AsPrefillFlashV2 = 10
    AsPrefillXformer = 11


class AsEvictionStrategy(NamedIntEnum):
    """Which request is interrupted when the KV cache is full."""

    MaxLength = 0
    Random = 1


class AsSchedulingStrategy(NamedIntEnum):
    ContextPriority = 0
    Balance = 1


class VocabType(NamedIntEnum):
    VOCAB_TYPE_WPM = 0
    VOCAB_TYPE_SPM = 1
    VOCAB_TYPE_UGM = 2
    VOCAB_TYPE_BPE = 3


class TargetDevice(Enum):
    """Read `.name`; two of the values are tuples, as in the original."""

    CUDA = ("CUDA",)
    CPU = ("CPU",)
    CPU_NUMA = "CPU_NUMA"


class RoPEScaleMethod(Enum):
    NO_SCALE = 0
    YaRN = 3
    NTK = 4
