#pragma once

#include <utility>
#include <vector>

namespace rematch {

/// Forward steps that are run again to reverse a uniform chain whose input is stored, with free
/// slots for further values (Griewank and Walther 2000), and the first advance that attains it.
class Revolve {
 public:
  Revolve(int most_steps, int most_slots) : most_slots_(most_slots) {
    steps_.resize(static_cast<std::size_t>((most_steps + 1) * (most_slots + 1)));
    first_ = steps_;
    for (int slots = 0; slots <= most_slots; ++slots) {
      for (int n = 2; n <= most_steps; ++n) {
        int& best = steps_[index(n, slots)];
        best = slots == 0 ? n * (n - 1) / 2 : n * n;
        first_[index(n, slots)] = n - 1;
        for (int m = 1; m < n && slots > 0; ++m) {
          const int steps = m + steps_[index(n - m, slots - 1)] + steps_[index(m, slots)];
          if (steps >= best) continue;
          best = steps;
          first_[index(n, slots)] = m;
        }
      }
    }
  }
  int steps(int n, int slots) const { return steps_[index(n, slots)]; }

  /// Each advance is a segment; its own advances lie in it. `make(begin, end, nested)` returns one.
  template <class Segment, class Make>
  std::vector<Segment> plan(int begin, int end, int slots, const Make& make) const {
    if (end - begin == 1) return {};
    const int middle = begin + first_[index(end - begin, slots)];
    std::vector<Segment> list{make(begin, middle, plan<Segment>(begin, middle, slots, make))};
    const int left = slots > 0 ? slots - 1 : 0;
    for (Segment& s : plan<Segment>(middle, end, left, make)) list.push_back(std::move(s));
    return list;
  }

 private:
  std::size_t index(int n, int slots) const {
    return static_cast<std::size_t>(n * (most_slots_ + 1) + slots);
  }

  int most_slots_;
  std::vector<int> steps_;
  std::vector<int> first_;
};

}  // namespace rematch
