#include "properties/rounding/moe.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "properties/rounding/functions.h"

namespace rematch::rounding {
namespace {

/// The likeliest experts, and whether every implementation chooses these.
struct Choice {
  std::vector<std::size_t> experts;
  bool certain = true;
};

Choice choose(const Tape& t, const Vars& probabilities, std::size_t top) {
  std::vector<std::size_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return t[probabilities[a]].value > t[probabilities[b]].value;
  });
  Choice choice;
  choice.experts.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(top));
  for (std::size_t i = 0; i < top; ++i) {
    for (std::size_t j = top; j < order.size(); ++j) {
      if (!(t.low(probabilities[order[i]]) > t.high(probabilities[order[j]]))) {
        choice.certain = false;
      }
    }
  }
  return choice;
}

Vars probabilities_of(LayerRun& l, std::span<const Var> x) {
  Tape& t = l.tape;
  Vars logits;
  for (std::size_t e = 0; e < at(l.spec.experts); ++e) {
    for (std::size_t f = 0; f < x.size(); ++f) {
      t.plus_product(x[f], l.parameters[0][e * x.size() + f]);
    }
    logits.push_back(t.sum());
  }
  const Exponentials exp = exponentials(t, logits);
  const Var scale = reciprocal(t, exp.sum);
  return map(exp.x, [&](Var v) { return t.plus_product(v, scale).sum(); });
}

Var undecided(LayerRun& l, std::span<const Var> x) {
  Vars of(x.begin(), x.end());
  for (const Vars& p : l.parameters) of.insert(of.end(), p.begin(), p.end());
  return l.tape.undecided(of);
}

}  // namespace

Vars moe(LayerRun& l) {
  Tape& t = l.tape;
  const auto width = static_cast<std::size_t>(l.shape[l.shape.rank() - 1]);
  std::vector<Bounded> rows(at(l.spec.experts));
  Vars y;
  for (std::size_t first = 0; first < l.operands[0].size(); first += width) {
    const std::span<const Var> x = std::span(l.operands[0]).subspan(first, width);
    const Vars probabilities = probabilities_of(l, x);
    const Choice choice = choose(t, probabilities, at(l.spec.top));
    for (const std::size_t e : choice.experts) rows[e].value += 1;
    if (!choice.certain) {
      for (Bounded& n : rows) n.error += 1;
      const Var anything = undecided(l, x);
      for (std::size_t g = 0; g < width; ++g) y.push_back(t.undecided({anything}));
      continue;
    }
    for (std::size_t g = 0; g < width; ++g) {
      Vars outputs;
      for (const std::size_t e : choice.experts) {
        for (std::size_t f = 0; f < width; ++f) {
          t.plus_product(x[f], l.parameters[1][(e * width + g) * width + f]);
        }
        outputs.push_back(t.sum());
      }
      for (std::size_t j = 0; j < outputs.size(); ++j) {
        t.plus_product(probabilities[choice.experts[j]], outputs[j]);
      }
      y.push_back(t.sum());
    }
  }
  for (std::size_t e = 0; l.train && e < rows.size(); ++e) {
    l.buffers[0][e] = t.plus(l.buffers[0][e]).plus(t.leaf(rows[e])).sum();
  }
  return y;
}

}  // namespace rematch::rounding
