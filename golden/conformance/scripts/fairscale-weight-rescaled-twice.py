# A recomputation gives other values than the forward.
# Found at step 0, microbatch 0, layer 1 (custom), execution 1, result 3: expected
# aten::embedding_renorm_, bits with hash f01d2d02a6837064, got aten::embedding_renorm_, bits with
# hash 5b5e1ba23504be8d
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from functools import cache
from typing import Any

from fairscale.nn import checkpoint_wrapper
from torch import Tensor


class Holder(nn.Module):
    def __init__(self, held: list[Any]) -> None:
        super().__init__()
        weights = [part for part in held if isinstance(part, Tensor)]
        self.weights = nn.ParameterList(nn.Parameter(w.detach(), w.requires_grad) for w in weights)
        self.parts = nn.ModuleList(part for part in held if isinstance(part, nn.Module))

    def forward(self, function: Any, *inputs: Tensor) -> Any:
        return function(*inputs)


def held_by(function):
    parts = [cell.cell_contents for cell in function.__closure__ or ()]
    within = [held_by(part) for part in parts if hasattr(part, "__closure__")]
    return sum(within, [part for part in parts if isinstance(part, (Tensor, nn.Module))])


@cache
def wrapped(function):
    return checkpoint_wrapper(Holder(held_by(function)), False)


def checkpoint(function, *inputs, use_reentrant):
    return wrapped(function)(function, *inputs)


def run(checkpointed):
    x = torch.tensor([[-1.6721557, -0.29352358, -0.6525004, -0.3839071, 0.79329854, -1.130028, -1.2349639, -0.050162524, -1.1721554, 0.5432675, -0.42288044, 0.78752244, -0.7963786, 0.67339927, -1.0098776, 1.598734, -1.574836, -0.7627055, -0.4150189, 1.854522, 1.5153011, -0.31761166, -0.18866901, -0.3385261, 0.47226578, 0.081007704, -1.1012285, -0.5050908, 0.6238483, -1.216047, 1.3432069, 2.02214, -1.5121017, 0.7993531, 0.46009237, 0.15522061, -0.567007, -0.3363223, 0.28833184, -0.19456345, -0.45901328, -1.1066188, -0.042407446, 0.69174844, 0.04274865, -0.45119676, -0.49655467, 0.36388776, -0.18984129, 0.517299, -0.15737975, 1.8603867, -0.74331117, 0.50270665, 1.7698746, 0.010808348, -0.64882284, 0.93743825, -1.0511434, 0.63392556, -1.6774495, 1.0896658, -0.6908968, 0.8025731, 1.6818393, -0.9054902, 0.5989078, -0.55177116, -0.28901216, -1.178451, -0.5044512, -0.4659201, -0.3446713, -0.9577102, -1.8852288, 0.41360918, 2.1765602, 0.8827, 0.07004687, -0.03855258, 1.1622809, -0.51181465, -1.2723238, -0.10096758, -1.2020383, 0.68552256, 0.33944485, 1.892206, -1.6952682, -0.45990247, -1.6792334, -0.16609775, 0.42589283, -0.03985185, -0.008188038, 1.6201785, 0.5923672, 1.6070571, -2.4393795, -1.58379, 0.6108286, 0.3092804, 1.514968, -0.42071363, 0.4864042, 0.6342578, 1.8156796, 1.2004561]], requires_grad=True)
    target = torch.tensor([[0.7361822, 0.26996553, 0.5130248, 0.36745644, -0.20151299, 0.56469643, -0.64086854, 0.5908098, -0.8865669, 0.59083664, 0.30347002, 0.8828958, 0.071123004, -0.8532476, -0.6353159, 0.32418597, 0.79563546, -0.2801481, 0.71678877, 0.7303963, 0.6025146, 0.26633894, -0.44369024, 0.06208825, 0.9654219, 0.53768957, 0.44752848, 0.28304935, 0.29427397, 0.314551, -0.8422954, -0.19176102, 0.6188828, -0.71703064, 0.09338939, 0.26186895, -0.16285694, 0.44269502, 0.032452226, -0.48955673, -0.9227911, 0.7774106, -0.91780615, 0.40775406, 0.9422381, -0.9275937, 0.15317285, -0.43702835, 0.7690561, -0.017105281, -0.55167586, -0.531835, -0.27402824, 0.104501486, 0.44330812, -0.9119252, -0.30590904, 0.56049895, -0.4040805, -0.45320392, -0.19061297, 0.97558844, -0.3599038, -0.25068384, 0.11287856, -0.40037537, 0.50168955, -0.12537873, 0.055397987, 0.45355928, -0.8333562, 0.45142162, 0.3984661, 0.77777886, -0.93322134, 0.074786305, 0.6703763, -0.97428745, 0.5184052, -0.49408185, -0.1642471, 0.88679254, 0.7877275, -0.26614493, 0.33059788, 0.07758117, -0.28977484, 0.33804572, -0.36892772, -0.10605425, 0.14813626, -0.4604287, 0.99191487, 0.11929762, -0.41840416, -0.079956174, 0.9025637, -0.18606097, -0.07467502, 0.58347094, 0.110785246, 0.34230208, -0.93365514, -0.6950134, 0.1207304, 0.3735025, -0.36987704, -0.45010513]])
    torch.manual_seed(2975413253)
    m1 = nn.EmbeddingBag(2, 108, max_norm=0.5, mode='mean')

    def block(x):
        return x + m1((x.detach() > 0).long())

    torch.manual_seed(2975413252)
    y = torch.relu(x)
    y = checkpoint(block, y, use_reentrant=True) if checkpointed else block(y)
    loss = F.mse_loss(y, target)
    loss.backward()
    optimizer = torch.optim.SGD([m1.weight], lr=0.05)
    optimizer.step()
    return {"m1.weight": m1.weight.detach()}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
