"""Makes batches for a model of transformers, from the names of its arguments."""

import inspect
from collections.abc import Iterator
from typing import Any

import torch

from rematch.zoo.shrink import FIRST_WORD, IMAGE, PATCH, VOCAB
from rematch.zoo.trial import is_required, normal

ROWS, WORDS, TARGETS, SAMPLES, FRAMES = 2, 12, 10, 6400, 64


def batches(model: Any) -> Iterator[dict[str, Any]]:
    """Yields keyword arguments to try, the fullest first."""
    takes = inspect.signature(model.forward).parameters
    for batch in _bases(model, takes):
        more = _labels(model, takes, batch)
        if more:
            yield batch | more
        yield batch


def _bases(model: Any, takes: Any) -> Iterator[dict[str, Any]]:
    text = _text(model, takes)
    required = {n: v for n, p in takes.items() if is_required(p) for v in [_by_name(model, n)] if v is not None}
    if "pixel_values" in takes:
        for pixels, tokens in _images(model, takes) if "input_ids" in takes else ():
            ids = _with_images(model, text, tokens)
            if ids is not None:
                yield required | text | {"input_ids": ids} | pixels
        yield from (required | text | pixels for pixels in _pixels(model, takes))
    for name in ("input_values", "input_features"):
        for sound in _sounds(model) if name in takes else ():
            yield required | text | {name: sound}
            rest = {k: v for k, v in text.items() if k != "input_ids"}
            yield required | rest | {name: sound}
    yield required | text
    if text and required:
        yield text


def words(model: Any, count: int) -> torch.Tensor:
    """Returns ids of words, of shape (ROWS, count)."""
    try:
        vocab = getattr(model.get_input_embeddings(), "num_embeddings", VOCAB)
    except (NotImplementedError, AttributeError):
        vocab = VOCAB
    first = FIRST_WORD if vocab >= VOCAB else vocab // 2
    generator = torch.Generator().manual_seed(1)
    return torch.randint(first, min(vocab, VOCAB), (ROWS, count), generator=generator)


def _text(model: Any, takes: Any) -> dict[str, Any]:
    batch: dict[str, Any] = {}
    if "input_ids" in takes:
        batch["input_ids"] = words(model, WORDS)
    if "decoder_input_ids" in takes:
        batch["decoder_input_ids"] = words(model, TARGETS)
    if "bbox" in takes:
        batch["bbox"] = torch.tensor([1, 2, 9, 12]).expand(ROWS, WORDS, 4).contiguous()
    return batch


def _find(config: Any, *names: str) -> Any:
    """Returns the first of these fields that is set in a configuration, or in one nested in it."""
    for name in names:
        value = getattr(config, name, None)
        if value is not None:
            return value
    for part in vars(config).values():
        if hasattr(part, "model_type") and (value := _find(part, *names)) is not None:
            return value
    return None


def _pixels(model: Any, takes: Any) -> Iterator[dict[str, Any]]:
    size = _find(model.config, "image_size", "img_size", "input_size") or IMAGE
    height, width = (size[0], size[-1]) if isinstance(size, (list, tuple)) else (size, size)
    if isinstance(height, (list, tuple)) or not isinstance(height, int):
        height = width = IMAGE
    channels = _find(model.config, "num_channels", "in_channels", "in_chans")
    channels = channels if isinstance(channels, int) else 3
    mask = {"pixel_mask": torch.ones(ROWS, height, width, dtype=torch.long)} if "pixel_mask" in takes else {}
    yield {"pixel_values": normal(ROWS, channels, height, width), **mask}
    frames = _find(model.config, "num_frames", "frames_per_clip") or 4
    yield {"pixel_values": normal(ROWS, frames, channels, height, width)}
    yield {"pixel_values": normal(ROWS, channels, 2 * height, 2 * width)}
    yield {"pixel_values": normal(ROWS, 1, channels, height, width)}


def _images(model: Any, takes: Any) -> Iterator[tuple[dict[str, Any], int]]:
    config = getattr(model.config, "vision_config", model.config)
    if "image_grid_thw" in takes:
        patch, merge = getattr(config, "patch_size", PATCH), getattr(config, "spatial_merge_size", 2)
        depth = getattr(config, "temporal_patch_size", 1)
        grid = torch.tensor([[1, 4, 4]] * ROWS)
        for times in (depth, 1):
            flat = normal(ROWS * 16, 3 * times * patch * patch)
            yield {"pixel_values": flat, "image_grid_thw": grid}, 16 // merge**2
    for pixels in _pixels(model, takes):
        sizes = torch.tensor([[IMAGE, IMAGE]] * ROWS)
        more = {"image_sizes": sizes} if "image_sizes" in takes else {}
        try:
            with torch.no_grad():
                features = model.get_image_features(**pixels, **more)
            features = getattr(features, "pooler_output", features)
            parts = features if isinstance(features, (list, tuple)) else [features]
            count = sum(part.numel() // part.shape[-1] for part in parts) // ROWS
        except Exception:
            continue
        yield pixels | more, count


def _with_images(model: Any, text: dict[str, Any], count: int) -> Any:
    token = _find(model.config, "image_token_id", "image_token_index")
    if token is None:
        return None
    ids = text["input_ids"]
    return torch.cat([ids[:, :2], torch.full((ROWS, count), token), ids[:, 2:]], dim=1)


def _sounds(model: Any) -> Iterator[torch.Tensor]:
    bins = _find(model.config, "num_mel_bins", "feature_size", "n_mels", "input_feat_per_channel", "input_dim") or 16
    length = 2 * (_find(model.config, "max_source_positions", "max_length") or FRAMES // 2)
    yield normal(ROWS, SAMPLES)
    yield normal(ROWS, 1, SAMPLES)
    yield normal(ROWS, bins, length)
    yield normal(ROWS, length, bins)
    yield normal(ROWS, length // 2, bins)
    yield normal(ROWS, FRAMES, bins)
    yield normal(ROWS, 1, FRAMES, bins)


def _labels(model: Any, takes: Any, batch: dict[str, Any]) -> dict[str, Any]:
    if "labels" not in takes:
        return {}
    if "decoder_input_ids" in takes and "decoder_input_ids" in batch:
        return {"labels": batch["decoder_input_ids"].clone()}
    name = type(model).__name__
    if "Classification" in name and "Token" not in name:
        return {"labels": torch.tensor([0, 1])}
    if "CTC" in name:
        return {}
    ids = batch.get("input_ids")
    return {} if ids is None else {"labels": ids.clone()}


def _by_name(model: Any, name: str) -> Any:
    """Returns a value for an argument that the model requires, by its name."""
    if name in ("input_ids", "decoder_input_ids"):
        return words(model, WORDS)
    config = model.config
    if name in ("grid_thw", "image_grid_thw"):
        return torch.tensor([[1, 4, 4]] * ROWS)
    if name == "merge_sizes":
        return torch.tensor([getattr(config, "spatial_merge_size", 2)] * ROWS)
    if name in ("hidden_states", "pixel_values") and isinstance(getattr(config, "patch_size", None), int):
        # Patches of all images, one after the other.
        values = getattr(config, "in_channels", getattr(config, "num_channels", 3)) * config.patch_size**2
        return normal(ROWS * 16, values * getattr(config, "temporal_patch_size", 1))
    if name == "pixel_values_videos":
        frames = getattr(config, "num_frames", None) or getattr(config, "frames_per_clip", 4)
        size = _find(config, "image_size", "crop_size") or IMAGE
        return normal(ROWS, frames, 3, size, size)
    if name == "past_values":
        length = getattr(config, "context_length", 32)
        channels = getattr(config, "num_input_channels", 0)
        return normal(ROWS, length, channels) if channels else normal(ROWS, length)
    if name == "query_embeds":
        return normal(ROWS, 8, config.hidden_size)
    if name in ("input_features_mask", "audio_mel_mask"):
        return torch.ones(ROWS, FRAMES, dtype=torch.long)
    if name in ("input_features", "audio_mel"):
        return normal(ROWS, FRAMES, 16)
    return None
