#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bench/compare/comparison.h"

namespace rematch::compare {

/// A ratio as a change: 1.031 is "+3.1 %".
std::string change_text(double ratio);
/// The same for exact values, where no change reads as none: "+0.0000051 %". `before` is not zero.
std::string exact_change_text(std::int64_t before, std::int64_t after);
/// "+1.2 .. +3.4 %"; "any" when the interval is infinite.
std::string interval_text(double low, double high);
/// "812 ns", "12.3 us", "12.3 ms", "1.23 s".
std::string time_text(double ns);
/// "2,359,296 B" for counters of bytes, else "1,234".
std::string amount_text(std::string_view counter, std::int64_t value);
/// A counter that is not exact: up to six significant digits.
std::string number_text(double value);
/// "1 benchmark", "2 benchmarks".
std::string counted(std::int64_t n, std::string_view noun);
/// The label, else the first 12 characters of the commit id with "+changes" for a dirty one, else
/// "?".
std::string side_text(const Side& side);

/// "peak_bytes of cifar/sqrt rose by 2,359,296 B (+3.1 %), from 76,000,000 B to 78,359,296 B".
std::string counter_sentence(const std::string& benchmark, const CounterResult& counter);
/// "cifar/sqrt is slower by 6.1 % (95 % interval +4.2 .. +7.9 %, 18 pairs): 12.1 ms, now 12.9 ms".
std::string time_sentence(const BenchmarkResult& benchmark, const Options& options);
/// Why a time is UNSURE, and what would help.
std::string unsure_reason(const TimeResult& time, const Comparison& comparison);
/// The verdict of its time, or "MISSING", "NEW" or "FAILED" where there is nothing to compare.
std::string verdict_word(const BenchmarkResult& benchmark);
/// "REGRESSION: 1 slower, 2 counters rose", "NO REGRESSION: ...", "UNSURE: ...".
std::string headline(const Comparison& comparison);
/// The count of each verdict of time: "27 same, 1 slower, 2 unsure".
std::string verdict_counts(const Comparison& comparison);
/// "time is not compared: rematch_cpu differs: expected "A" as in a.json, got "B" in b.json".
/// Why CPU times were compared.
std::string clock_sentence(double share);
std::string refusal_sentence(const FingerprintDifference& difference);

}  // namespace rematch::compare
