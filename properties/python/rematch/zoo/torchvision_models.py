"""Builds models of torchvision: the smallest of each of its modules, made narrower."""

import inspect
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
import torchvision

from rematch.zoo import Built
from rematch.zoo.narrow import narrow
from rematch.zoo.shrink import DROPOUT, IMAGE
from rematch.zoo.trial import first, normal

CLASSES = 7
"""The number of classes. Four times as many are no multiple of the factors below, which divide channels."""
_WHOLE = ("densenet", "vision_transformer", "swin_transformer", "maxvit", "convnext", "video.mvit")
"""Modules whose models are made small by their arguments."""


@cache
def names() -> list[str]:
    """Returns the smallest model of each module, by the number of parameters that its weights state."""
    least: dict[str, tuple[int, str]] = {}
    for name in torchvision.models.list_models():
        if name.startswith("quantized_"):
            # They do not train.
            continue
        weights = torchvision.models.get_model_weights(name)
        size = min((w.meta["num_params"] for w in weights), default=0)
        least[_home(name)] = min(least.get(_home(name), (1 << 60, "")), (size, name))
    return sorted(name for _, name in least.values())


def _home(name: str) -> str:
    return torchvision.models.get_model_builder(name).__module__.removeprefix("torchvision.models.")


def has(name: str) -> bool:
    """Whether torchvision has a model of this name, also one that names() leaves out."""
    return name in torchvision.models.list_models()


def build(name: str) -> Built:
    """Builds a model. Raises NotBuilt."""
    factors = (1,) if _home(name) in _WHOLE else (8, 4, 1)
    return first(
        [partial(_narrow, name, factor) for factor in factors], lambda model: ((b, {}) for b in _batches(name))
    )


def _narrow(name: str, factor: int) -> Any:
    with narrow(factor):
        return _model(name)


def _model(name: str) -> Any:
    home = _home(name)
    options: dict[str, Any] = {"num_classes": CLASSES, "dropout": DROPOUT, "attention_dropout": DROPOUT}
    if home == "densenet":
        # Its own checkpointing is on.
        return torchvision.models.DenseNet(16, (2, 2), 16, 4, DROPOUT, CLASSES, memory_efficient=True)
    if home == "vision_transformer":
        return torchvision.models.VisionTransformer(IMAGE, 16, 2, 2, 32, 64, **options)
    if home == "swin_transformer":
        small: dict[str, Any] = {"patch_size": [4, 4], "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 2]}
        return torchvision.models.SwinTransformer(**small, window_size=[4, 4], **options)
    if home == "maxvit":
        return torchvision.models.MaxVit((IMAGE, IMAGE), 16, 2, [16, 32], [1, 1], 8, 0.1, num_classes=CLASSES)
    if home == "convnext":
        stage = torchvision.models.convnext.CNBlockConfig
        stages = [stage(16, 32, 2), stage(32, None, 1)]
        return torchvision.models.ConvNeXt(stages, 0.1, num_classes=CLASSES)
    if home == "video.mvit":
        block = torchvision.models.video.mvit.MSBlockConfig
        blocks = [block(2, 16, 16, [3, 3, 3], [3, 3, 3], [1, n, n], [1, 2, 2]) for n in (1, 2)]
        return torchvision.models.video.MViT((IMAGE, IMAGE), 4, blocks, True, True, False, False, num_classes=CLASSES)
    takes = inspect.signature(torchvision.models.get_model_builder(name)).parameters
    given: dict[str, Any] = {"weights": None}
    if "optical_flow" not in home:
        given["num_classes"] = CLASSES
    if "weights_backbone" in takes:
        given["weights_backbone"] = None
    if ".detection" in "." + home and "ssd" not in name:
        given |= {"min_size": IMAGE, "max_size": IMAGE}
    return torchvision.models.get_model(name, **given)


def _batches(name: str) -> Iterator[tuple[Any, ...]]:
    home = _home(name)
    if home.startswith("detection"):
        target: dict[str, Any] = {"boxes": torch.tensor([[4.0, 4.0, 40.0, 40.0]]), "labels": torch.tensor([1])}
        target["masks"] = torch.ones(1, IMAGE, IMAGE, dtype=torch.uint8)
        target["keypoints"] = torch.tensor([[[10.0, 10.0, 1.0]] * 17])
        yield [normal(3, IMAGE, IMAGE).sigmoid() for _ in range(2)], [target] * 2
    elif home.startswith("optical_flow"):
        yield normal(1, 3, 128, 128), normal(1, 3, 128, 128)
    elif home.startswith("video"):
        for frames, extent in ((4, IMAGE), (16, IMAGE), (16, 112), (16, 224)):
            yield (normal(1, 3, frames, extent, extent),)
    else:
        for extent in (IMAGE, 96, 224, 299):
            yield (normal(2, 3, extent, extent),)
