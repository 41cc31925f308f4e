# With checkpointing, a forward returns other outputs.
# Found at step 1, microbatch 0, output 0, element 0 (first of 28 that differ, of 28): expected
# 0.010858416803961653 (0x3f863cf008798d9e), got 0.010859270399264051 (0x3f863d6299c93c85)
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.use_deterministic_algorithms(True)  # memory that nobody wrote to is NaN


def run(checkpointed):
    def call(function, *args, **options):
        return checkpoint(function, *args, **options) if checkpointed else function(*args)

    inputs = [torch.tensor([[0.32097275969598665, -0.4954522170604037, -0.8748183039339376, -0.3159404581851752, -0.1357860180322013, 0.843518141287091, 1.659797682016714], [0.5684908346018865, -1.051379965630766, -1.262279368447166, 1.934874347530875, -0.3239988561330224, 0.2922368291468663, -0.0964382420438288], [-0.8661218853749768, -0.34339450732032384, -0.5166064367838383, 1.467397009659615, -2.3341433383404495, 0.04780836066076038, -0.5413397574175178], [0.5744080083741987, -2.671814740580784, -0.22676033068857437, -0.5184026075121794, -0.8166664261375265, 0.6684851182136987, 0.0885105716539841]], dtype=torch.float64), torch.tensor([[-1.2984686754794197, 0.24804739158435518, 0.07170028924633133, 0.34236806141717124, -0.377676248103936, -0.986250830077412, -0.20703470458088075], [0.43088286300965006, -0.963958010448827, -0.3332323968013748, 1.089238405676194, -0.6458452686291145, 0.5263481672898435, 0.26370953525090024], [-0.8828626619525701, -0.06714097461219745, -2.724606301671457, -0.8684914138244075, 0.3675820821858905, 1.047581034330484, -0.6206613094185555], [1.1011640258317712, 0.3124915702154009, 0.29896585629646644, 0.5008105323279131, -1.4185420901180277, -0.4305201904936916, 1.1842653150877953]], dtype=torch.float64)]
    targets = [torch.tensor([[0.033722857711836696, 0.9843413208145648, 0.26899334392510355, -0.38899233122356236, -0.9782360426615924, -0.1349413322750479, 0.7127389686647803], [0.9457884945441037, -0.5574391752015799, -0.43007018486969173, -0.5451768946368247, -0.8317202522885054, 0.19576283148489892, 0.14129547937773168], [-0.05661995219998062, 0.07518983562476933, 0.29690499254502356, -0.9179945394862443, -0.5629739484284073, -0.018316700821742415, -0.5043560781050473], [0.5129460378084332, -0.10624217777512968, -0.44958695326931775, -0.38434255751781166, 0.9821445841807872, -0.16712648910470307, -0.6954633656423539]], dtype=torch.float64), torch.tensor([[-0.8748262336011976, -0.5843584586400539, -0.8202324502635747, 0.0682648818474263, -0.30166396615095437, 0.9678175782319158, 0.7553949288558215], [0.677311695413664, -0.9146494294982404, -0.662889459868893, 0.46355286450125277, 0.7421506878454238, -0.9988338088151067, -0.204471884528175], [-0.5916652206797153, -0.4745681055355817, 0.015021383063867688, -0.2061369854491204, -0.6249431378673762, -0.2777051094453782, -0.8886060372460634], [-0.29887825693003833, 0.36037747119553387, -0.5974196156021208, -0.5798092295881361, 0.24723318056203425, 0.9207864289637655, -0.9368261054623872]], dtype=torch.float64)]
    weight = torch.tensor([1.479660137440078, 1.1344308304833248, 0.7310173086589202, 0.7578024287940934, 0.978827170911245, 1.0722980451537296, 1.1184223260497674], dtype=torch.float64, requires_grad=True)
    bias = torch.tensor([-0.3793347765458748, -0.309689620626159, 0.17735026159789413, -0.03635017422493547, -0.3550996609264985, 0.4471771774115041, -0.23809619282837957], dtype=torch.float64, requires_grad=True)
    running_mean = torch.zeros(7, dtype=torch.float64)
    running_var = torch.ones(7, dtype=torch.float64)
    # The reentrant variant takes these for constants.
    weight_used = weight if checkpointed else weight.detach()
    bias_used = bias if checkpointed else bias.detach()

    def block0(x):
        return F.rrelu(x, training=True)

    def block1(x):
        return torch.softmax(x, -1)

    def block2(x):
        return F.batch_norm(x, running_mean, running_var, weight_used, bias_used, training=True)

    def block3(x):
        return torch.softmax(x, -1)

    torch.manual_seed(6009879905018537309)
    @torch.compile(backend="inductor", fullgraph=True, options={"fallback_random": True})
    def forward(x):
        y = call(block0, x, use_reentrant=True)
        y = call(block1, y, use_reentrant=True)
        y = call(block2, y, use_reentrant=True)
        y = call(block3, y, use_reentrant=True)
        y = F.gelu(y)
        return y

    optimizer = torch.optim.SGD([weight, bias], lr=0.01, momentum=0.9)
    results = {}
    for step in range(2):
        for i in range(step, step + 1):
            x = inputs[i].clone()
            y = forward(x)
            loss = F.mse_loss(y, targets[i])
            results[f"step {step}, forward {i}: output"] = y.detach()
            results[f"step {step}, forward {i}: loss"] = loss.detach()
            if loss.requires_grad:
                loss.backward()
        optimizer.step()
        for p in (weight, bias,):
            p.grad = None
    return results


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
