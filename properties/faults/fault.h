#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "properties/subjects/engine_subject.h"

namespace rematch {

/// A deliberately wrong checkpointing: the proof that the laws can fail. The engine holds no fault;
/// a fault overrides some of its mechanics, or puts a checkpoint() around the engine's own.
struct Fault {
  /// Letter of its family and a number: R random state, G gradient flow, A arguments, S state of
  /// layers, P partition, F fidelity of the recomputation, L lifetime, C concurrency and devices, E
  /// errors.
  std::string_view id;
  std::string_view statement;  ///< One sentence: what the wrong engine does.
  /// Where it happened: "owner/repository#number", separated by blanks; empty: no thread is known.
  std::string_view threads;
  /// A wrong engine, for one run. nullptr: there is none, for the reason below.
  EngineParts (*make)() = nullptr;
  /// Why no run could tell such an engine from the right one.
  std::string_view equivalent = {};
  /// Equipment that a run of it needs beyond a host: "a captured step on a GPU".
  std::string_view needs = {};

  bool runs() const { return make != nullptr; }
};

/// All of them, family by family.
const std::vector<Fault>& faults();

/// nullptr when there is none of that id.
const Fault* find_fault(std::string_view id);

}  // namespace rematch
