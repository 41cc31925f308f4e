# A recomputation gives other values than the forward.
# Found at step 0, microbatch 0, layer 1 (custom), execution 1, result 6: expected
# aten::mkldnn_rnn_layer, bits with hash 31e7b30a4de97b54, got aten::mkldnn_rnn_layer, bits with
# hash 5495242250f3d2ec
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def run(checkpointed):
    x = torch.tensor([[0.035309013, -1.7036773], [1.1517159, -2.180466]])
    target = torch.tensor([[0.41278994, -0.30213296, -0.10712284, -0.77318007], [-0.23484415, -0.86182106, -0.5926738, 0.6516175]])
    torch.manual_seed(503938666)
    m0 = nn.EmbeddingBag(2, 2, max_norm=0.5, mode='mean')
    torch.manual_seed(503938667)
    m1 = nn.LSTM(2, 2, bidirectional=True)

    def block(x):
        return m1(x)[0]

    torch.manual_seed(503938666)
    y = x + m0((x.detach() > 0).long())
    y = checkpoint(block, y, use_reentrant=True) if checkpointed else block(y)
    loss = F.mse_loss(y, target)
    if loss.requires_grad:
        loss.backward()
    return {
        "m0.weight.grad": m0.weight.grad,
        "m1.weight_ih_l0.grad": m1.weight_ih_l0.grad,
        "m1.weight_hh_l0.grad": m1.weight_hh_l0.grad,
        "m1.bias_ih_l0.grad": m1.bias_ih_l0.grad,
        "m1.bias_hh_l0.grad": m1.bias_hh_l0.grad,
        "m1.weight_ih_l0_reverse.grad": m1.weight_ih_l0_reverse.grad,
        "m1.weight_hh_l0_reverse.grad": m1.weight_hh_l0_reverse.grad,
        "m1.bias_ih_l0_reverse.grad": m1.bias_ih_l0_reverse.grad,
        "m1.bias_hh_l0_reverse.grad": m1.bias_hh_l0_reverse.grad,
    }


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
