"""DashInfer's low-level API: engines, models and requests by status codes.

Scripts written for `dashinfer.allspark` run on it: by this name, or unchanged by
`python -m headrace.compat script.py`. docs/allspark.md says what is different.

The modules here, quant/ and config/ have the names of DashInfer's own. loading/: from a folder
to what the engine installs. serving/: requests and their results.
"""

from __future__ import annotations

from headrace.allspark._allspark import AsCacheMode as AsCacheMode
from headrace.allspark._allspark import AsEngine as AsEngine
from headrace.allspark._allspark import AsEngineStat as AsEngineStat
from headrace.allspark._allspark import AsEvictionStrategy as AsEvictionStrategy
from headrace.allspark._allspark import AsFileInfo as AsFileInfo
from headrace.allspark._allspark import AsMHAPrefill as AsMHAPrefill
from headrace.allspark._allspark import AsModelConfig as AsModelConfig
from headrace.allspark._allspark import AsSchedulingStrategy as AsSchedulingStrategy
from headrace.allspark._allspark import AsStatus as AsStatus
from headrace.allspark._allspark import GeneratedElements as GeneratedElements
from headrace.allspark._allspark import GenerateRequestStatus as GenerateRequestStatus
from headrace.allspark._allspark import MultiMediaInfo as MultiMediaInfo
from headrace.allspark._allspark import RequestHandle as RequestHandle
from headrace.allspark._allspark import ResultQueue as ResultQueue
from headrace.allspark._allspark import VocabType as VocabType
from headrace.allspark._allspark import (
    save_allsparky_dltensor_tofile as save_allsparky_dltensor_tofile,
)
from headrace.allspark._allspark import set_global_header as set_global_header
from headrace.allspark.engine import Engine as Engine
from headrace.allspark.engine import TargetDevice as TargetDevice
from headrace.allspark.errors import AsException as AsException
from headrace.allspark.errors import ModelSerializerException as ModelSerializerException
from headrace.allspark.generation_config import (
    ASGenerationConfigBuilder as ASGenerationConfigBuilder,
)
from headrace.allspark.model_loader import DashInferModel as DashInferModel
from headrace.allspark.model_loader import HuggingFaceModel as HuggingFaceModel
from headrace.allspark.quant.methods import QUANT_CONFIG_MAP as QUANT_CONFIG_MAP
from headrace.allspark.quant.methods import get_quant_settings_cls as get_quant_settings_cls
from headrace.allspark.quant.quantization_config import (
    QuantizationSettings as QuantizationSettings,
)
from headrace.allspark.quant.quantization_config_gptq import GPTQSettings as GPTQSettings
from headrace.allspark.quant.quantization_config_iq import IQSettings as IQSettings
from headrace.allspark.runtime_config import (
    AsModelRuntimeConfigBuilder as AsModelRuntimeConfigBuilder,
)

# What the original's star import gives, and four names that its page uses without importing them.
__all__ = [
    "ASGenerationConfigBuilder",  # not in the original's
    "AsCacheMode",  # not in the original's
    "AsModelConfig",
    "AsModelRuntimeConfigBuilder",  # not in the original's
    "AsStatus",
    "Engine",
    "GenerateRequestStatus",
    "HuggingFaceModel",
    "MultiMediaInfo",
    "TargetDevice",  # not in the original's
    "save_allsparky_dltensor_tofile",
    "set_global_header",
]
