#include "bench/steps/peak.h"

#include <cstddef>
#include <stdexcept>

namespace rematch::bench {
namespace {

using ByTag = std::array<std::int64_t, kTagCount>;

ByTag held(const Ledger& ledger) {
  ByTag by_tag{};
  for (std::size_t i = 0; i < by_tag.size(); ++i) by_tag[i] = ledger.live(static_cast<Tag>(i));
  return by_tag;
}

std::int64_t& at(ByTag& by_tag, Tag tag) { return by_tag[static_cast<std::size_t>(tag)]; }

constexpr std::int32_t kKinds = 8;

}  // namespace

PeakWatch::PeakWatch(Ledger& ledger, const std::vector<std::string>& layers)
    : ledger_(ledger), layers_(layers), before_(held(ledger)), live_before_(ledger.live()) {
  ledger_.clear_timeline();
  ledger_.record_timeline(true);
  ledger_.set_label(label_of(Kind::begin, 0));
}

PeakWatch::~PeakWatch() {
  ledger_.record_timeline(false);
  ledger_.clear_timeline();
}

std::int32_t PeakWatch::label_of(Kind kind, int layer) {
  return layer * kKinds + static_cast<std::int32_t>(kind);
}

std::string PeakWatch::place_of(std::int32_t label) const {
  const auto kind = static_cast<Kind>(label % kKinds);
  if (kind == Kind::begin) return "beginning of the step";
  if (kind == Kind::loss) return "loss";
  if (kind == Kind::loss_backward) return "backward of the loss";
  const auto layer = static_cast<std::size_t>(label / kKinds);
  const char* what = kind == Kind::forward         ? "forward"
                     : kind == Kind::recomputation ? "recomputation"
                                                   : "backward";
  return std::string(what) + " of layer " + std::to_string(layer) + " (" + layers_.at(layer) + ")";
}

void PeakWatch::enter(int layer) {
  ledger_.set_label(label_of(is_backward_ ? Kind::recomputation : Kind::forward, layer));
}

void PeakWatch::leave() {
  if (is_backward_) ledger_.set_label(backward_label_);
}

void PeakWatch::made(int layer, Tensor y) {
  if (!y.requires_grad()) return;
  y.register_hook([this, layer](const Tensor&) -> Tensor {
    backward_label_ = label_of(Kind::backward, layer);
    ledger_.set_label(backward_label_);
    return {};
  });
}

void PeakWatch::enter_loss() { ledger_.set_label(label_of(Kind::loss, 0)); }

void PeakWatch::begin_backward() {
  is_backward_ = true;
  backward_label_ = label_of(Kind::loss_backward, 0);
  ledger_.set_label(backward_label_);
}

Peak PeakWatch::peak() const {
  ByTag now = before_;
  Peak peak{live_before_, before_, 0, Tag::temporaries, place_of(0)};
  std::int64_t saved = at(now, Tag::saved);
  for (const LedgerEvent& event : ledger_.timeline()) {
    switch (event.kind) {
      case LedgerEvent::Kind::allocate:
        at(now, event.tag) += event.bytes;
        break;
      case LedgerEvent::Kind::release:
        at(now, event.tag) -= event.bytes;
        break;
      case LedgerEvent::Kind::retag:
        // An event names the new tag. Within a step, bytes leave `saved` or are temporaries.
        at(now, event.saved < saved ? Tag::saved : Tag::temporaries) -= event.bytes;
        at(now, event.tag) += event.bytes;
        break;
    }
    saved = event.saved;
    if (event.live <= peak.bytes) continue;
    peak = {event.live, now, event.bytes, event.tag, place_of(event.label)};
  }
  if (now != held(ledger_)) {
    throw std::logic_error("[peak] the ledger's events do not add up to its bytes by tag");
  }
  return peak;
}

}  // namespace rematch::bench
