"""The table of bench/peers/compare_steps from both sides' lines. Times are medians over rounds."""

import json
import statistics
import sys

torch, ours, facts = {}, {}, {}
for line in open(sys.argv[1]):
    row = json.loads(line)
    torch.setdefault(row["name"], []).append(row["ms"])
    facts.setdefault(row["name"], {})["torch_peak"] = row["peak_bytes"]
    version = row["torch"]
for line in open(sys.argv[2]):
    result = json.loads(line)
    for row in result["benchmarks"]:
        name = "/".join(row["name"].split("/")[:2])
        ours.setdefault(name, []).append(row["real_time"])
        facts[name].update(row)
context = result["context"]
print(f"{context['rematch_build']}, {context['rematch_threads']} threads, {context['rematch_cpu']}; torch {version}")
print(f"{'model/plan':28}{'ours ms':>9}{'torch ms':>10}{'torch/ours':>11}"
      f"{'overhead':>10}{'torch':>8}{'FLOPs':>8}{'peak bytes':>14}{'torch':>14}")
for name in torch:
    plain = name.split("/")[0] + "/plain"
    a, b = statistics.median(ours[name]), statistics.median(torch[name])
    over, over_torch = (a / statistics.median(ours[plain]), b / statistics.median(torch[plain]))
    fact = facts[name]
    due = fact["flops"] / (fact["flops"] - fact["recomputed_flops"])
    print(f"{name:28}{a:9.3f}{b:10.3f}{b / a:11.2f}{over:10.3f}{over_torch:8.3f}{due:8.3f}"
          f"{fact['peak_bytes']:14,.0f}{fact['torch_peak']:14,.0f}")
