"""Builds models of diffusers: every class, made small by rules over the arguments of its constructor."""

import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache, partial
from itertools import product
from typing import Any

import diffusers
import torch

from rematch.zoo import Built
from rematch.zoo.shrink import DROPOUT, HEAD, HEADS, INNER, WIDTH
from rematch.zoo.trial import first, is_required, normal, seeded

TOKENS, TEXT, SIDE = 16, 6, 16
_RULES: tuple[tuple[str, int], ...] = (
    (r"heads$|_head$", HEADS),
    (r"head_dim$|head_size$", HEAD),
    (r"layers|depth|num_\w*blocks$|^blocks", 2),
    (r"ff_|ffn_|ff_dim|intermediate|mlp_dim|inner_dim", INNER),
    (r"groups$", 4),
    (r"sample_(size|height|width)$|^resolution$", SIDE),
    (r"sample_frames", 5),
    (r"^num_embeddings$|text_seq_length$", TEXT),
    (r"vocab_size|num_vq|pos_embed_max_size", 64),
    (r"^(in|out)_channels$|^(in|out)_visual_dim$|latent_channels|z_channels|^latent_dim", WIDTH),
    (r"freq_dim|frequency_embedding|time_proj", 32),
    (r"dim\d?$|hidden_size|hidden_dim|channels$|^ch$|_dims$|width$|embed_dim", WIDTH),
)  # fmt: skip
"""The largest value of an argument whose name matches a pattern; the first match counts."""
_GIVEN = (
    "encoder_hidden_states", "timestep", "pooled_projections", "img_ids", "txt_ids", "img_shapes", "txt_seq_lens",
    "num_frames", "height", "width", "padding_mask", "encoder_hidden_states_2", "encoder_attention_mask_2",
    "image_embeds", "control_hidden_states",
)  # fmt: skip
"""Arguments that are passed even if they are not required."""
_LATENTS = (
    "hidden_states", "sample", "latents", "z", "x", "image_latents", "control_hidden_states", "controls_latents",
)  # fmt: skip
_WHERE_NONE = {"in_channels": 4, "out_channels": 4, "patch_size": 2, "sample_size": SIDE, "cross_attention_dim": WIDTH}
"""Arguments that default to None, and without which some classes do not work."""
_REQUIRED = {"in_channels": 3, "out_channels": 3, "latent_channels": 4, "layers_per_block": 1, "sample_size": SIDE}


@cache
def names() -> list[str]:
    found = (getattr(diffusers, name, None) for name in dir(diffusers))
    base = diffusers.ModelMixin
    return sorted({k.__name__ for k in found if isinstance(k, type) and issubclass(k, base) and k is not base})


def has(name: str) -> bool:
    return name in names()


def build(name: str) -> Built:
    """Builds a model. Raises NotBuilt."""
    kind = getattr(diffusers, name)
    sizes = ((16, {}), (32, {}), (32, _WHERE_NONE))
    return first([partial(_model, kind, *size) for size in sizes], lambda model: (((), b) for b in _batches(model)))


def _model(kind: Any, base: int, missing: Mapping[str, Any]) -> Any:
    given = _arguments(kind, base, missing)
    return seeded(lambda: kind(**given))


def _arguments(kind: Any, base: int, missing: Mapping[str, Any]) -> dict[str, Any]:
    new: dict[str, Any] = {}
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        value = parameter.default
        if value is inspect.Parameter.empty:
            if name in _REQUIRED:
                new[name] = _REQUIRED[name]
        elif value is None and name in missing:
            new[name] = missing[name]
        elif isinstance(value, float) and "drop" in name:
            new[name] = DROPOUT
        elif (small := _small(name, value, base)) is not value:
            new[name] = small
    if "block_out_channels" in new and "norm_num_groups" in new:
        new["norm_num_groups"] = 4
    return new


def _small(name: str, value: Any, base: int) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, list, tuple)) or not value:
        return value
    if re.search(r"axes_dim|rope_dim_list|rope_axes|mrope_section", name):
        # They share a head, or half of it, among themselves.
        whole = HEAD // 2 if "mrope" in name else HEAD
        parts = [whole * v // sum(value) // 2 * 2 for v in value]
        return type(value)([parts[0] + whole - sum(parts), *parts[1:]])
    if re.search(r"stride|kernel|ratio|factor|patch|scale|rope|mult|rate", name):
        return value
    most = next((most for rule, most in _RULES if re.search(rule, name)), None)
    if most is None:
        return value
    if isinstance(value, int):
        return min(value, most)
    if not all(isinstance(v, int) and not isinstance(v, bool) for v in value):
        return value
    if most == 2:
        return type(value)(min(v, 1 if len(value) > 2 else 2) for v in value)
    if "channels" in name and len(value) > 1:
        least = min(value)
        return type(value)(v * base // least for v in value) if least > base else value
    return type(value)(min(v, most) for v in value)


def _batches(model: Any) -> Iterator[dict[str, Any]]:
    takes = inspect.signature(model.forward).parameters
    config = model.config
    channels = _first(config, "in_channels", "in_visual_dim", "latent_channels", "latent_dim", "num_channels")
    channels = channels if isinstance(channels, int) else WIDTH
    hidden = [
        (2, channels, SIDE, SIDE),
        (2, TOKENS, channels),
        (1, channels, 5, SIDE, SIDE),
        (1, 5, channels, SIDE, SIDE),
        (1, channels, 2 * SIDE, 2 * SIDE),
        (1, channels, 9, 2 * SIDE, 2 * SIDE),
        (2, channels, TOKENS),
        (1, channels, 1024),
        (2, channels),
    ]
    axes = len(_first(config, "axes_dims_rope", "axes_dim_rope") or (0, 0, 0))
    asked = ["guidance"] if config.get("guidance_embeds") else []
    asked += [n for n, p in takes.items() if n in _GIVEN or is_required(p)]
    for shape, whole, truth, batched in product(hidden, (True, False), (torch.long, torch.bool), (False, True)):
        batch: dict[str, Any] = {}
        for name in asked:
            value = _value(name, shape, axes, whole, truth, batched)
            if value is not None:
                batch[name] = value
        yield batch
        lean = {n: v for n, v in batch.items() if is_required(takes[n])}
        if len(lean) < len(batch):
            yield lean
            more = {"encoder_attention_mask": torch.ones(shape[0], TEXT, dtype=truth)}
            yield {n: v for n, v in (batch | more).items() if n in takes}


def _value(name: str, shape: tuple[int, ...], axes: int, whole: bool, truth: torch.dtype, batched: bool) -> Any:
    rows = shape[0]
    if name in _LATENTS or (name == "controlnet_cond" and not batched):
        return normal(*shape)
    if name == "controlnet_cond":
        return normal(rows, 3, 8 * SIDE, 8 * SIDE)
    if name == "img_shapes":
        return [[(1, 4, 4)]] * rows
    if name == "txt_seq_lens":
        return [TEXT] * rows
    if name == "padding_mask":
        return torch.ones(rows, 1, *shape[-2:]) if len(shape) > 3 else None
    if name in ("original_size", "target_size", "crop_coords"):
        return torch.tensor([[SIDE * 8, SIDE * 8]] * rows)
    if "timestep" in name or name == "sigma":
        return torch.tensor([3, 7][:rows]) if whole else torch.tensor([0.3, 0.7][:rows])
    if name == "guidance":
        return torch.ones(rows)
    if re.search(r"_mask(_2)?$", name):
        return torch.ones(rows, TEXT, dtype=truth)
    if name.startswith("pooled") or name in ("text_embeds", "proj_embedding"):
        return normal(rows, WIDTH)
    if name in ("img_ids", "txt_ids"):
        count = TEXT if name == "txt_ids" else shape[1] if len(shape) == 3 else TOKENS
        ids = torch.arange(count)[:, None].expand(count, axes).float()
        return ids.expand(rows, count, axes) if batched else ids
    if "hidden_states" in name or "embeds" in name or "embedding" in name:
        return normal(rows, TEXT, WIDTH)
    if name.endswith("input_ids"):
        return torch.arange(TEXT).expand(rows, TEXT)
    if name == "fps":
        return torch.tensor([8] * rows)
    counts = {"num_frames": 1, "height": 4, "width": 4} if len(shape) == 3 else {}
    return counts.get(name, 1.0 if name == "conditioning_scale" else None)


def _first(config: Any, *names: str) -> Any:
    return next((config[name] for name in names if config.get(name) is not None), None)
