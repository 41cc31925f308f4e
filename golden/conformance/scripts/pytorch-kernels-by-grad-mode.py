# A recomputation gives other values than the forward.
# Found at step 0, microbatch 0, layer 0 (custom), execution 1, result 6: expected
# aten::mkldnn_rnn_layer, bits with hash 082c84b6be79e0bd, got aten::mkldnn_rnn_layer, bits with
# hash 610832823df9c883
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def run(checkpointed):
    x = torch.tensor([[-0.24418333, 1.9727423], [0.17962794, -2.347513]], requires_grad=True)
    target = torch.tensor([[-0.15547484, 0.90121603, 0.87835157, 0.4550419], [0.5926248, 0.91093695, 0.33732688, 0.13249195]])
    torch.manual_seed(3687229577)
    m0 = nn.LSTM(2, 2, bidirectional=True)

    def block(x):
        return m0(x)[0]

    torch.manual_seed(3687229577)
    y = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
    loss = F.mse_loss(y, target)
    loss.backward()
    return {
        "x.grad": x.grad,
        "m0.weight_ih_l0.grad": m0.weight_ih_l0.grad,
        "m0.weight_hh_l0.grad": m0.weight_hh_l0.grad,
        "m0.bias_ih_l0.grad": m0.bias_ih_l0.grad,
        "m0.bias_hh_l0.grad": m0.bias_hh_l0.grad,
        "m0.weight_ih_l0_reverse.grad": m0.weight_ih_l0_reverse.grad,
        "m0.weight_hh_l0_reverse.grad": m0.weight_hh_l0_reverse.grad,
        "m0.bias_ih_l0_reverse.grad": m0.bias_ih_l0_reverse.grad,
        "m0.bias_hh_l0_reverse.grad": m0.bias_hh_l0_reverse.grad,
    }


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
