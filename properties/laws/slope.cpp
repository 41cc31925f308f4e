#include "properties/laws/slope.h"

#include <cmath>
#include <cstring>

namespace rematch {
namespace {

/// The losses of the first step: their sum, and the sum of their absolute values.
struct LossSum {
  double value = 0;
  double magnitude = 0;
};

LossSum first_step(const Case& c, const Record& record) {
  LossSum sum;
  for (const Observation& o : record.observations) {
    if (o.quantity != Quantity::loss || o.step != 0) continue;
    double loss = 0;
    std::memcpy(&loss, record.bytes_of(o).data(), sizeof(loss));
    sum.value += c.protocol.backwards * loss;
    sum.magnitude += c.protocol.backwards * std::fabs(loss);
  }
  return sum;
}

}  // namespace

bool has_slope(const Case& c, const Forecast& forecast) {
  return c.dtype == DType::float64 && c.data == DataKind::normal && forecast.frozen_layers.empty();
}

std::optional<SlopeSamples> measure_slope(const Case& c, const Geometry& geometry, Subject& subject,
                                          const Record& plain, Record& scratch) {
  SlopeSamples samples;
  const LossSum middle = first_step(c, plain);
  samples.middle = middle.value;
  samples.magnitude = middle.magnitude;
  struct Stop {
    double distance;
    double SlopeSamples::*sample;
  };
  for (const Stop& stop :
       {Stop{kDisplacement, &SlopeSamples::forward}, Stop{-kDisplacement, &SlopeSamples::backward},
        Stop{kDisplacement / 2, &SlopeSamples::half_forward},
        Stop{-kDisplacement / 2, &SlopeSamples::half_backward}}) {
    RunRequest request;
    request.displacement = stop.distance;
    subject.run(c, geometry, request, scratch);
    if (scratch.error) return std::nullopt;
    samples.*stop.sample = first_step(c, scratch).value;
  }
  return samples;
}

}  // namespace rematch
