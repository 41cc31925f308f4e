"""transformers' activation_checkpointing_enable(), on small models of many families.

Each family is a layer: a model between two linear ones. Where such a layer lies in a segment, its
model is told to checkpoint its own blocks; nothing is checkpointed around it.
"""

from inspect import getsource
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from rematch.frameworks.pytorch.adapter import options_of, parser_of
from rematch.frameworks.pytorch.custom import CustomLayer
from rematch.frameworks.pytorch.model import Block
from rematch.frameworks.pytorch.subject import TorchSubject
from rematch.subjects.protocol import Request
from rematch.subjects.records import Record

_OTHERS = ("batch_norm", "group_norm", "rms_norm", "silu", "gelu", "sigmoid", "softmax", "rrelu")
_OTHERS += ("delayed_scaling", "spectral_norm", "kv_cache", "gru", "lstm", "moe", "hooked")
_OTHERS += ("rotary", "embedding", "stochastic_depth", "early_exit")

LACKS = {
    **{name: "layers beside models only fill their gaps" for name in _OTHERS},
    "preserve_rng_off": "whether a model draws within its blocks, or between them, is not declared",
    "selective": "policies name what the harness's own layers compute",
    "injected_failure": "failures befall whole layers, and blocks are what is recomputed",
    **{name: "blocks are not nested" for name in ("nested_2", "nested_3", "nested_4")},
    **{name: "families take rows" for name in ("images", "conv2d", "max_pool2d", "avg_pool2d")},
    "float64": "some models compute in float32 whatever their weights are",
}

UNSEEN = {"injected_failures": "likewise"}

SETUP = """\
from transformers import AutoConfig, AutoModel


class Rows(nn.Module):
    def __init__(self, read, columns, size, width, family, **config):
        super().__init__()
        config = AutoConfig.for_model(family, **config)
        self.read, self.model = read, AutoModel.from_config(config)
        self.first, self.last = nn.Linear(columns, size), nn.Linear(width, columns)

    def forward(self, x):
        return x + self.last(self.read(self.model, self.first(x)).mean(1))


def words(model, x):
    return model(inputs_embeds=x.view(len(x), 4, -1)).last_hidden_state


def numbers(model, x):
    return model(input_ids=x.view(len(x), 4, -1).argmax(2)).last_hidden_state


def pair(model, x):
    x = x.view(len(x), 4, -1)
    return model(inputs_embeds=x, decoder_inputs_embeds=x).last_hidden_state


def picture(model, x):
    return model(pixel_values=x.view(len(x), 3, 8, 8)).last_hidden_state


def sound(model, x):
    # The model sets a flag of what it is given.
    return model(input_values=x.detach()).last_hidden_state


def spectrum(model, x):
    words = x.view(len(x), 4, 8)
    return model(input_features=words[..., :4].contiguous(), decoder_inputs_embeds=words)[0]
"""

_SIZES = {"words": 32, "numbers": 36, "pair": 32, "picture": 192, "sound": 40, "spectrum": 32}
"""How many numbers each way to read takes: four words of eight, or of a vocabulary of nine, ..."""

_USUAL = "hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8, "
_WORDS = _USUAL + "vocab_size=9"
_CODERS = (
    "d_model=8, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, "
    "decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, vocab_size=9, "
    "encoder_layerdrop=0.25, decoder_layerdrop=0.25"
)
_T5 = "d_model=8, d_kv=4, d_ff=8, num_layers=2, num_heads=2, vocab_size=9"
_PICTURE = _USUAL + "image_size=8, patch_size=4"
_STAGES = "image_size=8, patch_size=2, embed_dim=8, depths=[2], num_heads=[2], window_size=2"
_SOUND = (
    _USUAL + "conv_dim=[8], conv_kernel=[4], conv_stride=[4], num_feat_extract_layers=1, "
    "num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, mask_time_prob=0.0, "
    "layerdrop=0.25"
)

FAMILIES = {
    "gpt2": ("words", "n_embd=8, n_layer=2, n_head=2, vocab_size=9"),
    "gpt_neox": ("words", _WORDS),
    "gptj": ("numbers", "n_embd=8, n_layer=2, n_head=2, rotary_dim=4, vocab_size=9"),
    "bloom": ("words", "hidden_size=8, n_layer=2, n_head=2, vocab_size=9, hidden_dropout=0.25"),
    "falcon": ("words", _WORDS),
    "opt": ("words", _WORDS + ", ffn_dim=8, word_embed_proj_dim=8, layerdrop=0.25"),
    "llama": ("words", _WORDS),
    "gemma3_text": ("words", _WORDS + ", num_key_value_heads=2, head_dim=4"),
    "mixtral": ("words", _WORDS + ", num_key_value_heads=2, num_local_experts=3"),
    "qwen2_moe": ("words", _WORDS + ", num_key_value_heads=2, num_experts=4, decoder_sparse_step=1"),
    "mamba": ("words", "hidden_size=8, num_hidden_layers=2, state_size=4, vocab_size=9"),
    "bert": ("words", _WORDS),
    "bert_ids": ("numbers", _WORDS),
    "electra": ("words", _WORDS + ", embedding_size=8"),
    "deberta-v2": ("words", _WORDS + ", relative_attention=True, pos_att_type=['c2p']"),
    "git": ("numbers", _WORDS + f", vision_config=dict({_PICTURE})"),
    "roformer": ("numbers", _WORDS + ", embedding_size=8, is_decoder=True"),
    "t5": ("pair", _T5),
    "umt5": ("pair", _T5),
    "switch_transformers": ("pair", _T5 + ", num_experts=2, num_sparse_encoder_layers=1"),
    "bart": ("pair", _CODERS),
    "pegasus": ("pair", _CODERS),
    "m2m_100": ("pair", _CODERS),
    "nllb-moe": ("pair", _CODERS + ", num_experts=2, encoder_sparse_step=1, decoder_sparse_step=1"),
    "vit": ("picture", _PICTURE),
    "beit": ("picture", _PICTURE + ", drop_path_rate=0.5"),
    "clip_vision_model": ("picture", _PICTURE),
    "mlcd_vision_model": ("picture", _PICTURE),
    "dinov2": ("picture", _PICTURE + ", drop_path_rate=0.5"),
    "swin": ("picture", _STAGES + ", drop_path_rate=0.5"),
    "wav2vec2": ("sound", _SOUND),
    "wav2vec2-conformer": ("sound", _SOUND + ", position_embeddings_type='rotary'"),
    "whisper": ("spectrum", _CODERS + ", num_mel_bins=4, max_source_positions=2, pad_token_id=0"),
}


def _layer(name: str, read: str, config: str) -> CustomLayer:
    family = name.removesuffix("_ids")
    make = f"Rows({read}, C, {_SIZES[read]}, 8, {family!r}, {config})"
    return CustomLayer(name.replace("-", "_"), "N C -> N C", make, setup=SETUP)


LAYERS = [_layer(name, *family) for name, family in FAMILIES.items()]


def held_by(function):
    """Tensors and modules that a function closes over, itself or through functions that it closes over."""
    parts = [cell.cell_contents for cell in function.__closure__ or ()]
    within = [held_by(part) for part in parts if hasattr(part, "__closure__")]
    return sum(within, [part for part in parts if isinstance(part, (Tensor, nn.Module))])


SCRIPT = f"""
from torch import Tensor, nn
from transformers import PreTrainedModel


{getsource(held_by)}

def checkpoint(function, *inputs, use_reentrant, **options):
    for part in held_by(function):
        if isinstance(getattr(part, "model", None), PreTrainedModel):
            part.model.activation_checkpointing_enable(dict(use_reentrant=REENTRANT, **options))
    return function(*inputs)
"""


class Blocks:
    """Executions of a model's blocks in one run, seen by hooks."""

    def __init__(self, rows: nn.Module) -> None:
        self._rows = rows
        self._entered = self._recomputed = self._differentiated = False
        for name, block in rows.model.named_modules():
            # Where all blocks of a decoder are dropped, no gradient reaches those of the encoder.
            last = not rows.model.config.is_encoder_decoder or "decoder" in name
            if isinstance(block, GradientCheckpointingLayer) and last:
                for part in block.children():
                    part.register_forward_pre_hook(self._runs)
        rows.last.register_forward_pre_hook(self._made)

    def _runs(self, *_: Any) -> None:
        if torch._C._current_graph_task_id() != -1:
            self._recomputed = True
        elif self._rows.training:
            self._entered = True

    def _made(self, _: nn.Module, given: tuple[Tensor, ...]) -> None:
        if self._rows.training and given[0].requires_grad:
            given[0].register_hook(self._reached)

    def _reached(self, _: Tensor) -> None:
        self._differentiated = True

    def idle(self) -> bool:
        """Whether they ran and were differentiated, and none of them was recomputed."""
        return self._entered and self._differentiated and not self._recomputed


class Transformers(TorchSubject):
    """The harness knows nothing of blocks: to it, all values are to be as in the plain run, as
    those of the non-reentrant variant are. That blocks are recomputed is seen here."""

    def __init__(self, reentrant: bool, **options: Any) -> None:
        name = f"transformers {transformers.__version__}" + ", reentrant" * reentrant
        super().__init__(name, self._enable, imported=SCRIPT.replace("REENTRANT", str(reentrant)), **options)
        self.versions["transformers"] = transformers.__version__
        self._reentrant = reentrant
        self._seen: dict[nn.Module, Blocks] = {}

    def run(self, request: Request, record: Record) -> None:
        self._seen.clear()
        super().run(request, record)
        for rows, blocks in self._seen.items():
            if blocks.idle():
                family = type(rows.model).__name__
                record.error("NotRecomputed", f"no block of {family} ran again for the backward")

    def _enable(self, block: Block, *inputs: Tensor, use_reentrant: bool, **options: Any) -> Any:
        for part in block.held():
            if isinstance(getattr(part, "model", None), PreTrainedModel) and part not in self._seen:
                options["use_reentrant"] = self._reentrant
                part.model.activation_checkpointing_enable(dict(options))
                self._seen[part] = Blocks(part)
        return block(*inputs)


def subject(arguments: list[str]) -> TorchSubject:
    """transformers. Raises ImportError where there is none."""
    transformers.logging.set_verbosity_error()
    given = parser_of("transformers", ["reentrant", "non_reentrant"]).parse_args(arguments)
    options = options_of(given)
    options |= {"variant": "non_reentrant", "observe": "cheap", "layers": LAYERS}
    return Transformers(given.variant == "reentrant", lacks=LACKS, unseen=UNSEEN, **options)
