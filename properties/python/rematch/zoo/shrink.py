"""Makes a configuration of transformers small, by rules over the names of its fields."""

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

VOCAB, WIDTH, HEADS, HEAD, INNER, LAYERS = 64, 32, 2, 16, 64, 2
IMAGE, PATCH, POSITIONS, WINDOW, EXPERTS = 64, 16, 128, 8, 4
FIRST_WORD = 40
"""Ids from here to VOCAB are words; special tokens are below."""
DROPOUT = 0.1

_RULES: tuple[tuple[str, int], ...] = (
    (r"vocab_size(_per_layer_input)?$|^vocab_offset$", VOCAB),
    (r"^(num_)?qk_head_dim$", 2 * HEAD),
    (r"^mamba_d_ssm$", 2 * WIDTH),
    (r"^mamba_(d_head|head_dim)$", 2 * WIDTH // HEADS),
    (r"head_dim$|^d_kv$|^dim_head$|head_size$|^d_head$|^rotary_dim$", HEAD),
    (r"heads?$|^n_heads?_", HEADS),
    (r"^index_topk", 16),
    (r"(experts?_per_tok(en)?|top_?k(_experts)?|n_group|num_selected_experts|moe_k)$", 2),
    (r"topk_group$", 1),
    (r"experts$", EXPERTS),
    (r"(^|_)n?(layers?|blocks|depth)$|layers$|^(text|vision)_depth$", LAYERS),
    (r"_rank$|time_step_rank", 8),
    (r"intermediate|ffn_dim|mlp_dim|d_ff$|n_inner|feedforward_dim|ff_dim", INNER),
    (r"conv_pos_embeddings$", 16),
    (r"pos(ition)?_embeddings$|n_positions|positions$|context_length|max_sequence_length|max_seq(uence)?_len|max_pos_emb",
     POSITIONS),
    (r"image_size$|img_size|^input_size$|spectrogram_length", IMAGE),
    (r"patch_size$|patch_stride$|encoder_stride|^fstride$|^tstride$", PATCH),
    (r"sliding_window(_size)?$|local_attention$|attention_window$", WINDOW),
    (r"attention_chunk_size|block_size$", WINDOW),
    (r"^coordinate_size$", 4),
    (r"^shape_size$", 8),
    (r"num_(object_)?queries$|num_latents$|num_query_tokens$|latents?$|num_denoising", 8),
    (r"(num_)?groups$", 2),
    (r"mel_bins$|num_filters$|codebook_dim", 16),
    (r"codebook_size$|num_embeddings$|num_codevectors", VOCAB),
    (r"buckets$|num_pos_feats", 16),
    (r"hidden_size|hidden_dim|d_model|n_embd|emb(ed(ding)?)?_(size|dim)|proj(ection)?(or)?_(size|dim)|width$|"
     r"word_embed_proj_dim|channels$|^dim$|_dim$|^embed_dim|classifier_proj_size|upsample_groups|feature_size|"
     r"codevector_dim|pooler_output_size|hidden_dimension|output_size$|_channel$|(^|_)n_state$", WIDTH),
)  # fmt: skip
"""The largest value of a field whose name matches a pattern; the first match counts."""
_WHERE_NONE = {"vocab_size": VOCAB, "prediction_length": 4, "num_experts_per_tok": 2, "n_routed_experts": EXPERTS,
               "head_dim": HEAD, "num_key_value_heads": HEADS}  # fmt: skip
"""Fields that default to None, and without which a model does not work."""
_KEEPS = re.compile(
    r"kernel|stride|num_channels|in_channels$|in_chans|audio_channels|^channels$|dilation|ratio|ignore|seed|factor|scale$|"
    r"_every|interval|rope_theta|merge_size|sampling_rate|sample_rate|temporal|num_frames|frequency|mask_(time|feature)"
)
_TOKEN = re.compile(r"(token|begin|pad|eos|bos|sep|boi|eoi|boa|eoa|blank)_(id|index|ids)$|_token_idx$|token_ids?$")


class Shrinker:
    """Applies the rules to one configuration and those nested in it. `over`: fields that are set as they are, by name;
    "text_config.hidden_size" is a field of a nested configuration."""

    def __init__(self, over: Mapping[str, Any] | None = None) -> None:
        self._over = dict(over or {})
        self._ids: dict[int, int] = {}

    def shrunk(self, config: Any, path: str = "") -> Any:
        """Returns a smaller configuration of the same class."""
        base = type(config)
        known = {k: v for k, v in vars(config).items() if not k.startswith("_")}
        known |= {k: getattr(config, k) for k in _TAPS if getattr(config, k, None)}
        takes = set(inspect.signature(base.__init__).parameters) | set(getattr(base, "sub_configs", {}))
        takes |= {k for k in _TAPS if k in known}
        aliases = getattr(base, "attribute_map", {})
        chosen = self._layers(known)
        new: dict[str, Any] = {}
        for name, value in known.items():
            place = f"{path}.{name}" if path else name
            if place in self._over or name in self._over:
                new[name] = self._over.get(place, self._over.get(name))
            elif getattr(value, "model_type", "") == "timm_backbone":
                new[name] = _backbone(value)
            elif hasattr(value, "to_dict") and hasattr(value, "model_type"):
                new[name] = self.shrunk(value, place)
            elif name in takes and name not in aliases:
                small = self._field(name, value, known, chosen)
                if small is not value:
                    new[name] = small
        new.update({n: v for n, v in self._over.items() if "." not in n and n in takes})
        stale = (*_STALE, "out_features") if "out_indices" in new else _STALE
        kept = {k: v for k, v in known.items() if k in takes and k not in aliases and k not in stale}
        return base(**(kept | new))

    def _layers(self, known: Mapping[str, Any]) -> list[int] | None:
        """Returns which layers stay if lists say what each layer is: the first of each kind, at least two."""
        layers = _first_of(_LAYERS, known)
        if not isinstance(layers, int):
            return None
        lists = [v for v in known.values() if isinstance(v, (list, tuple)) and len(v) == layers > LAYERS]
        kinds: dict[str, int] = {}
        for index in range(layers):
            kinds.setdefault(repr([v[index] for v in lists]), index)
        taps = max((len(known[n]) for n in _TAPS if isinstance(known.get(n), (list, tuple))), default=0)
        if 1 < taps <= layers:
            return list(range(taps))
        chosen = sorted(kinds.values())[:4]
        return chosen if len(chosen) >= LAYERS else list(range(min(layers, LAYERS)))

    def _field(self, name: str, value: Any, known: Mapping[str, Any], chosen: list[int] | None) -> Any:
        if isinstance(value, float) and "drop" in name and "layerdrop" not in name:
            return DROPOUT
        if value is None:
            return _WHERE_NONE.get(name)
        if isinstance(value, bool):
            return value
        if isinstance(value, int):
            return self._number(name, value, known, chosen)
        if isinstance(value, (list, tuple)) and value:
            return self._list(name, value, known, chosen)
        if isinstance(value, dict) and "rope" in name:
            return _rope(value)
        return value

    def _number(self, name: str, value: int, known: Mapping[str, Any], chosen: list[int] | None) -> int:
        if _TOKEN.search(name):
            return self._id(value)
        if "drop" in name or _KEEPS.search(name):
            return value
        if name == "window_size":
            # Vision towers may count their windows in pixels.
            return min(value, 2) if value < IMAGE // 2 else value
        if chosen is not None and name in _LAYERS:
            return len(chosen)
        if "key_value" in name or "kv_heads" in name:
            heads = _first_of(("num_attention_heads", "n_head", "num_heads"), known)
            return 1 if isinstance(heads, int) and value < heads else min(value, HEADS)
        return min(value, _most(name, value))

    def _id(self, value: int) -> int:
        if value < FIRST_WORD:
            return value
        return self._ids.setdefault(value, FIRST_WORD - 1 - len(self._ids) % 24)

    def _list(self, name: str, values: Any, known: Mapping[str, Any], chosen: list[int] | None) -> Any:
        kind = type(values)
        layers = _first_of(_LAYERS, known)
        if chosen is not None and len(values) == layers and layers > LAYERS:
            values = kind(values[index] for index in chosen)
        if not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
            return values
        if chosen is not None and name in _TAPS:
            # They are counted from 1 where the input counts as one.
            first = len(chosen) - len(values) + (max(values) == layers)
            return kind(range(first, first + len(values)))
        if _TOKEN.search(name):
            return kind(self._id(v) for v in values)
        if _KEEPS.search(name) and "channels" not in name:
            return values
        if re.search(r"depths|blocks|num_layers|layers_per", name):
            return kind(min(v, 1 if len(values) > 2 else LAYERS) for v in values)
        if re.search(r"heads", name):
            return kind(min(v, HEADS) for v in values)
        if name == "conv_dim":
            return kind(WIDTH for _ in values)
        if re.search(r"hidden_sizes|dims?$|channels|widths|filters|embed_dim", name) and max(values) > WIDTH:
            # Other lists of the model may be multiples of this one.
            return kind(v // 4 if v % 4 == 0 else v for v in values)
        return kind(min(v, _most(name, v)) for v in values)


def _first_of(names: Sequence[str], known: Mapping[str, Any]) -> Any:
    return next((known[name] for name in names if name in known), None)


def _most(name: str, value: int) -> int:
    return next((most for rule, most in _RULES if re.search(rule, name)), value)


_LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
_TAPS = ("out_indices", "backbone_out_indices")
"""Lists of the layers whose outputs are used: as many layers are kept."""
_STALE = ("transformers_version", "id2label", "label2id")


def _backbone(config: Any) -> Any:
    """Returns a small network in place of one of timm, whose name decides its size."""
    from transformers import ResNetConfig

    stages = len(getattr(config, "out_indices", None) or [4])
    names = [f"stage{n}" for n in range(5 - min(stages, 4), 5)]
    return ResNetConfig(embedding_size=16, hidden_sizes=[16, 16, 32, 32], depths=[1] * 4, out_features=names)


def _rope(value: dict[str, Any]) -> dict[str, Any]:
    """Returns smaller settings of a rotary embedding: the sections of several axes share half of a head."""
    new = {k: _rope(v) if isinstance(v, dict) else v for k, v in value.items()}
    if "rope_type" in new:
        # Models that have sections have a default for them, which fits their default sizes.
        section = new.get("mrope_section") or [1, 1, 1]
        half = int(HEAD * (new.get("partial_rotary_factor") or 1)) // 2
        parts = [half * s // sum(section) for s in section]
        parts[0] += half - sum(parts)
        new["mrope_section"] = parts
        new["rope_theta"] = new.get("rope_theta") or 10_000.0
    if "original_max_position_embeddings" in new:
        new["original_max_position_embeddings"] = POSITIONS // 2
    return new
