"""Fields that the rules of shrink.py do not get right, by class of model."""

from __future__ import annotations

from typing import Any

OVER: dict[str, dict[str, Any]] = {
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
"""Without it: heads of size 0, a rotary embedding larger than a head, a switch of another name, and so on."""
