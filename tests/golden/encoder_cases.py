"""The golden cases of encoders: what make_encoders.py makes, and what each is to catch."""

from __future__ import annotations

import dataclasses
from typing import Any

# Tokens of each prompt, and where the second of two texts begins in it (0: there is one).
PROMPTS = ((1, 0), (17, 0), (70, 31), (131, 1))


@dataclasses.dataclass(frozen=True, slots=True)
class EncoderCase:
    name: str
    architecture: str  # a class of transformers
    config: dict[str, Any]
    dtype: str = "float32"
    # Dense modules of sentence-transformers behind the mean: outputs, bias, activation.
    dense: tuple[tuple[int, bool, str], ...] = ()


def _bert(**changes: Any) -> dict[str, Any]:
    sizes = {
        "vocab_size": 211,
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 88,
        "max_position_embeddings": 140,
    }
    return {**sizes, **changes}


def _modernbert(**changes: Any) -> dict[str, Any]:
    sizes = {
        "vocab_size": 211,
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "intermediate_size": 72,
        "max_position_embeddings": 256,
        "local_attention": 32,
        "pad_token_id": 0,
    }
    return {**sizes, **changes}


def _gemma() -> dict[str, Any]:
    return {
        "vocab_size": 211,
        "hidden_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "intermediate_size": 80,
        "max_position_embeddings": 256,
        "query_pre_attn_scalar": 32,
        "sliding_window": 30,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "use_bidirectional_attention": True,
        "pad_token_id": 0,
    }


CASES = (
    # The body alone, as AutoModel saves it: no prefix, and a pooler that nothing reads.
    EncoderCase(
        "bert",
        "BertModel",
        _bert(hidden_size=64, num_attention_heads=2, num_hidden_layers=2),
        "bfloat16",
    ),
    EncoderCase("bert_classifier", "BertForSequenceClassification", _bert(num_labels=1)),
    # Other positions than BERT's, one token type, several labels, an eps that shows.
    EncoderCase(
        "xlm_roberta_classifier",
        "XLMRobertaForSequenceClassification",
        _bert(num_labels=3, type_vocab_size=1, pad_token_id=1, layer_norm_eps=1e-2),
        "bfloat16",
    ),
    # Padding has another id, and so positions begin elsewhere; tanh GELU.
    EncoderCase(
        "roberta",
        "RobertaModel",
        _bert(pad_token_id=4, hidden_act="gelu_pytorch_tanh", num_hidden_layers=1),
    ),
    # No norm before the first layer, fused tensors, two ropes, windows that look both ways.
    EncoderCase("modernbert", "ModernBertModel", _modernbert(), "bfloat16"),
    # Every bias there may be, a window of an odd length, and the mean of all rows.
    EncoderCase(
        "modernbert_classifier",
        "ModernBertForSequenceClassification",
        _modernbert(
            num_labels=2,
            norm_bias=True,
            mlp_bias=True,
            attention_bias=True,
            classifier_bias=True,
            classifier_pooling="mean",
            local_attention=21,
            global_attn_every_n_layers=2,
        ),
    ),
    # Two Dense modules behind the mean; windows that look both ways.
    EncoderCase(
        "embedding_gemma",
        "Gemma3TextModel",
        _gemma(),
        "bfloat16",
        dense=((96, False, "identity"), (40, True, "tanh")),
    ),
)
