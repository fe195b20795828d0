"""Each model type's sizes, by the names its config gives them, with the defaults of transformers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from geosim.calibrate.source import Fields
from geosim.errors import UsageError


@dataclass(frozen=True)
class Shape:
    """What a config says.

    Attributes:
        model: fields of `geosim.scenario.Model` but name and source.
        left_out: vectors that the model has not: what they are -> parameters.
        ignored: what it does beyond a plain decoder that costs no parameters, each in a sentence.
    """

    model: Mapping[str, Any]
    left_out: Mapping[str, int] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()


def _refuse(c: Fields, what: str) -> UsageError:
    return UsageError(f"{c.where}: {what}: geosim's model cannot express it")


def _unless(usual: bool, value: int) -> int | None:
    return None if usual else value


def _window(c: Fields, used: bool) -> tuple[str, ...]:
    if used and c.has("sliding_window"):
        return (f"the sliding window of {c.whole('sliding_window'):,} tokens: attention is priced as full",)
    return ()


def _decoder(
    c: Fields, *, qkv_bias: bool = False, qk_norm: bool = False, tied: bool = False, window: bool = False,
    head_dim: int | None = None, norms_after: bool = False, vocabulary: int | None = None,
) -> Shape:  # fmt: skip
    """RMSNorm, rotary positions, grouped queries, a gated feed-forward part, no biases but those counted.

    `head_dim` and `vocabulary` are the type's defaults; `norms_after`: a norm follows each part too.
    """
    d, layers, heads = c.whole("hidden_size"), c.whole("num_hidden_layers"), c.whole("num_attention_heads")
    kv, ffn = c.whole("num_key_value_heads", heads), c.whole("intermediate_size")
    width = c.whole("head_dim", head_dim or d // heads or 1)
    left: dict[str, int] = {}
    if c.flag("attention_bias"):
        left["biases of attention"] = layers * ((heads + 2 * kv) * width + d)
    elif qkv_bias:
        left["biases of queries, keys and values"] = layers * (heads + 2 * kv) * width
    if c.flag("mlp_bias"):
        left["biases of the feed-forward part"] = layers * (2 * ffn + d)
    if qk_norm:
        left["norms of queries and keys"] = layers * 2 * width
    if norms_after:
        left["norms after attention and feed-forward part"] = layers * 2 * d
    own = c.has("head_dim") or head_dim is not None
    model = {
        "layers": layers, "d_model": d, "heads": heads, "kv_heads": _unless(kv == heads, kv),
        "head_dim": _unless(not own or width * heads == d, width), "ffn": ffn,
        "vocabulary": c.whole("vocab_size", vocabulary), "tied": c.flag("tie_word_embeddings", tied),
    }  # fmt: skip
    return Shape(model, left, _window(c, window))


def _mixtral(c: Fields) -> Shape:
    dense = _decoder(c, window=True)
    experts = {
        "experts": c.whole("num_local_experts", 8),
        "experts_per_token": c.whole("num_experts_per_tok", 2),
    }
    return Shape({**dense.model, **experts}, dense.left_out, dense.ignored)


def _qwen3_moe(c: Fields) -> Shape:
    dense = _decoder(c, qk_norm=True, window=c.flag("use_sliding_window"), head_dim=128)
    if c.whole("decoder_sparse_step", 1) != 1 or c.find("mlp_only_layers"):
        raise _refuse(c, "decoder_sparse_step, mlp_only_layers: experts in some layers only")
    experts = {
        "experts": c.whole("num_experts", 128), "experts_per_token": c.whole("num_experts_per_tok", 8),
        "ffn": c.whole("moe_intermediate_size"),
    }  # fmt: skip
    return Shape({**dense.model, **experts}, dense.left_out, dense.ignored)


def _gpt_oss(c: Fields) -> Shape:
    """Biases everywhere but on the norms, and a learned sink for the scores of each head."""
    dense = _decoder(c, window=True, head_dim=64)
    layers, d, heads = dense.model["layers"], dense.model["d_model"], dense.model["heads"]
    experts, kv = c.whole("num_local_experts", 128), dense.model["kv_heads"] or heads
    width, ffn = c.whole("head_dim", 64), dense.model["ffn"]
    left = {
        "biases and sinks of attention": layers * ((heads + 2 * kv) * width + d + heads),
        "biases of router and experts": layers * experts * (1 + 2 * ffn + d),
    }
    experts_per_token = c.whole("num_experts_per_tok", 4)
    return Shape(
        {**dense.model, "experts": experts, "experts_per_token": experts_per_token}, left, dense.ignored
    )


def _falcon(c: Fields) -> Shape:
    """LayerNorm with biases; one norm, two or none of their own before attention and feed-forward part.

    As FalconDecoderLayer and FalconAttention of transformers have it.
    """
    d, layers, heads = c.whole("hidden_size"), c.whole("num_hidden_layers"), c.whole("num_attention_heads")
    new, biases = c.flag("new_decoder_architecture"), c.flag("bias")
    parallel = new or c.flag("parallel_attn", True)
    kv = 1 if c.flag("multi_query", True) else heads
    kv = c.whole("num_kv_heads", heads) if new else kv
    norms = 2 if not parallel else c.whole("num_ln_in_parallel_attn", 2 if new else 1)
    if biases and norms != 2:
        raise _refuse(c, "bias: true: with one norm a layer")
    # A norm has two vectors here; the model's two have one each, or two with biases.
    more = 0 if biases else layers * (2 * norms - 2) * d + d
    model = {
        "layers": layers, "d_model": d, "heads": heads, "kv_heads": _unless(kv == heads, kv),
        "ffn": c.whole("ffn_hidden_size", 4 * d), "vocabulary": c.whole("vocab_size", 65024),
        "tied": c.flag("tie_word_embeddings", True), "gated": False, "biases": biases,
    }  # fmt: skip
    return Shape(model, {"biases of norms": more} if more else {}, _side_by_side(parallel))


def _side_by_side(used: bool) -> tuple[str, ...]:
    text = "attention and feed-forward part side by side: priced as one after the other"
    return (text,) if used else ()


def _gpt2(c: Fields) -> Shape:
    d = c.whole("n_embd")
    model = {
        "layers": c.whole("n_layer"), "d_model": d, "heads": c.whole("n_head"),
        "ffn": c.whole("n_inner", 4 * d), "vocabulary": c.whole("vocab_size"),
        "positions": c.whole("n_positions", 1024),
        "tied": c.flag("tie_word_embeddings", True), "gated": False, "biases": True,
    }  # fmt: skip
    return Shape(model)


def _gpt_neox(c: Fields) -> Shape:
    if not c.flag("attention_bias", True):
        raise _refuse(c, "attention_bias: false: biases everywhere but there")
    model = {
        "layers": c.whole("num_hidden_layers"), "d_model": c.whole("hidden_size"),
        "heads": c.whole("num_attention_heads"), "ffn": c.whole("intermediate_size"),
        "vocabulary": c.whole("vocab_size"), "tied": c.flag("tie_word_embeddings"),
        "gated": False, "biases": True,
    }  # fmt: skip
    return Shape(model, ignored=_side_by_side(c.flag("use_parallel_residual", True)))


def _opt(c: Fields) -> Shape:
    d = c.whole("hidden_size")
    if c.whole("word_embed_proj_dim", d) != d:
        raise _refuse(c, f"word_embed_proj_dim: {c.whole('word_embed_proj_dim')} is not hidden_size {d}")
    if not c.flag("do_layer_norm_before", True):
        raise _refuse(c, "do_layer_norm_before: false: no norm after the last layer")
    model = {
        "layers": c.whole("num_hidden_layers"), "d_model": d, "heads": c.whole("num_attention_heads"),
        "ffn": c.whole("ffn_dim"), "vocabulary": c.whole("vocab_size"),
        # OPTLearnedPositionalEmbedding keeps two rows for padding.
        "positions": c.whole("max_position_embeddings", 2048) + 2,
        "tied": c.flag("tie_word_embeddings", True), "gated": False, "biases": True,
    }  # fmt: skip
    return Shape(model)


def _bloom(c: Fields) -> Shape:
    names = (("n_embed", "hidden_size"), ("n_layer", "num_hidden_layers"), ("num_attention_heads", "n_head"))
    d, layers, heads = (c.whole(old) if c.has(old) else c.whole(new) for old, new in names)
    model = {
        "layers": layers, "d_model": d, "heads": heads, "ffn": 4 * d, "vocabulary": c.whole("vocab_size"),
        "tied": c.flag("tie_word_embeddings", True), "gated": False, "biases": True,
    }  # fmt: skip
    return Shape(model, {"the norm of the embedding": 2 * d})


def _mpt(c: Fields) -> Shape:
    if not c.flag("no_bias"):
        raise _refuse(c, "no_bias: false: norms without biases, maps with them")
    d = c.whole("d_model")
    model = {
        "layers": c.whole("n_layers"), "d_model": d, "heads": c.whole("n_heads"),
        "ffn": int(c.number("expansion_ratio", 4.0) * d), "vocabulary": c.whole("vocab_size"),
        "tied": True, "gated": False,
    }  # fmt: skip
    return Shape(model)


SHAPES: Mapping[str, Callable[[Fields], Shape]] = {
    "llama": _decoder,
    "mistral": lambda c: _decoder(c, window=True),
    "qwen2": lambda c: _decoder(c, qkv_bias=True, window=c.flag("use_sliding_window")),
    "qwen3": lambda c: _decoder(c, qk_norm=True, window=c.flag("use_sliding_window"), head_dim=128),
    "phi3": lambda c: _decoder(c, window=True),
    "gemma": lambda c: _decoder(c, tied=True, head_dim=256),
    "gemma2": lambda c: _decoder(c, tied=True, window=True, head_dim=256, norms_after=True),
    "gemma3_text": lambda c: _decoder(
        c, tied=True, window=True, head_dim=256, norms_after=True, qk_norm=True, vocabulary=262_208
    ),
    "mixtral": _mixtral,
    "qwen3_moe": _qwen3_moe,
    "gpt_oss": _gpt_oss,
    "falcon": _falcon,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "opt": _opt,
    "bloom": _bloom,
    "mpt": _mpt,
}

_LATENT = "keys and values come from a latent vector, and some experts are shared"
_SHARED = "some experts are shared by all tokens"
_STATE = "layers keep a state instead of attending"
_OTHER = "it is no decoder alone"
_VISION = "it has an encoder for images or sound beside the decoder"
REFUSED: Mapping[str, str] = {
    "deepseek_v2": _LATENT, "deepseek_v3": _LATENT, "deepseek": _SHARED, "qwen2_moe": _SHARED,
    "kimi_k2": _LATENT, "glm4_moe": _SHARED, "llama4": f"{_SHARED}, and {_VISION}", "llama4_text": _SHARED,
    "gemma3": _VISION, "gemma3n": _VISION, "gemma4": _VISION,
    "qwen3_next": _STATE, "mamba": _STATE, "mamba2": _STATE, "jamba": _STATE, "rwkv": _STATE, "bamba": _STATE,
    "granitemoehybrid": _STATE, "nemotron_h": _STATE,
    "t5": _OTHER, "bart": _OTHER, "bert": _OTHER, "roberta": _OTHER, "vit": _OTHER, "whisper": _OTHER,
    "clip": _OTHER, "qwen2_vl": _VISION, "qwen2_5_vl": _VISION, "qwen3_vl": _VISION, "mllama": _VISION,
    "llava": _VISION, "mistral3": _VISION, "phi4_multimodal": _VISION,
}  # fmt: skip
