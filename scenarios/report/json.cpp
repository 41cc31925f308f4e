#include "scenarios/report/render.h"

namespace rematch::scenarios {
namespace {

using Json = nlohmann::ordered_json;

/// In the order of Chart::Kind.
constexpr std::string_view kKinds[] = {"lines", "steps", "bars"};

Json item_json(const Paragraph& p) { return {{"say", p.markdown}}; }
Json item_json(const Claim& c) {
  return {{"claim", {{"holds", c.holds}, {"sentence", c.sentence}}}};
}
Json item_json(const Measured& m) { return {{"measured", m.line}}; }
Json item_json(const Table& t) {
  return {{"table", {{"title", t.title()}, {"columns", t.columns()}, {"rows", t.rows()}}}};
}
Json item_json(const Chart& c) {
  Json series = Json::array();
  for (const Series& s : c.series) series.push_back({{"name", s.name}, {"x", s.x}, {"y", s.y}});
  return {{"chart",
           {{"title", c.title},
            {"kind", kKinds[static_cast<int>(c.kind)]},
            {"x_label", c.x_label},
            {"y_label", c.y_label},
            {"categories", c.categories},
            {"series", series}}}};
}

}  // namespace

Json to_json(const Scenario& scenario, const Report& report) {
  Json items = Json::array();
  for (const Report::Item& item : report.items()) {
    items.push_back(std::visit([](const auto& one) { return item_json(one); }, item));
  }
  return {{"name", scenario.name},
          {"question", scenario.question},
          {"source", scenario.source},
          {"answer", scenario.answer},
          {"in_pytorch", scenario.in_pytorch.text},
          {"claims", report.claims()},
          {"failed", report.failed()},
          {"items", items}};
}

}  // namespace rematch::scenarios
