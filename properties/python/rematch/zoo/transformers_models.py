"""Builds models of transformers: one for each kind of configuration that it knows."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import transformers
from transformers.models.auto import configuration_auto, modeling_auto

from rematch.zoo import Built, NotBuilt
from rematch.zoo.batches import batches
from rematch.zoo.shrink import Shrinker
from rematch.zoo.trial import first, seeded, sentence

_TASKS = (
    "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "SPEECH_SEQ_2_SEQ", "MASKED_LM",
    "IMAGE_CLASSIFICATION", "VIDEO_CLASSIFICATION", "CTC", "AUDIO_CLASSIFICATION", "OBJECT_DETECTION",
    "INSTANCE_SEGMENTATION", "UNIVERSAL_SEGMENTATION", "SEMANTIC_SEGMENTATION", "DEPTH_ESTIMATION", "PRETRAINING",
)  # fmt: skip
"""Tasks in order of preference: the model of a configuration for the first one is built, or else the bare model."""

_OVER: dict[str, dict[str, Any]] = {
    "BridgeTowerModel": {"text_config.num_attention_heads": 2, "vision_config.hidden_size": 128, "hidden_size": 64},
    "CodeGenForCausalLM": {"n_head": 4, "n_embd": 64, "rotary_dim": 8},
    "DiffLlamaForCausalLM": {"attention_dropout": 0.0},
    "GPTNeoForCausalLM": {"attention_types": [[["global", "local"], 1]]},
    "Lfm2MoeForCausalLM": {"layer_types": ["conv", "full_attention"]},
    "Mamba2ForCausalLM": {"num_heads": 4},
    "ReformerModelWithLMHead": {"is_decoder": True},
    "TimmWrapperForImageClassification": {"architecture": "test_resnet"},
    "TimmWrapperModel": {"architecture": "test_resnet"},
    "Wav2Vec2BertForCTC": {"vocab_size": 64},
    "Wav2Vec2ConformerForCTC": {"vocab_size": 64},
    "XmodForCausalLM": {"default_language": "en_XX"},
}
"""Fields that the rules of shrink.py set wrong, by class of model: heads would have size 0, a rotary embedding would be
larger than a head, a switch has another name, and so on."""


@cache
def names() -> list[str]:
    """Returns the names of classes, one for each kind of configuration, in the order of the kinds."""
    found = {}
    for kind in configuration_auto.CONFIG_MAPPING_NAMES:
        for task in (*_TASKS, ""):
            table = f"MODEL_FOR_{task}_MAPPING_NAMES" if task else "MODEL_MAPPING_NAMES"
            name = getattr(modeling_auto, table, {}).get(kind)
            if name:
                found.setdefault(name if isinstance(name, str) else name[0], kind)
                break
    return list(found)


def prepare() -> None:
    """Imports what most models need, and prints no warnings."""
    transformers.logging.set_verbosity_error()
    for name in ("LlamaForCausalLM", "ViTForImageClassification", "WhisperForConditionalGeneration"):
        getattr(transformers, name)


def has(name: str) -> bool:
    """Whether transformers has a model class of this name, also one that names() leaves out."""
    kind = getattr(transformers, name, None)
    return isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)


def build(name: str) -> Built:
    """Builds a model. Raises NotBuilt."""
    kind = getattr(transformers, name)
    return first([lambda: _model(kind, name)], lambda model: (((), kwargs) for kwargs in batches(model)))


def _model(kind: Any, name: str) -> Any:
    try:
        config = Shrinker(_OVER.get(name)).shrunk(kind.config_class())
    except Exception as error:
        raise NotBuilt(f"its configuration: {sentence(error)}") from error
    for part in _configs(config):
        if hasattr(part, "use_cache"):
            # Checkpointing turns it off, and a training step has no use for it.
            part.use_cache = False
    return seeded(lambda: kind(config))


def _configs(config: Any) -> Iterator[Any]:
    yield config
    for value in vars(config).values():
        if isinstance(value, transformers.PreTrainedConfig):
            yield from _configs(value)
