#include "drill/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace baton::drill {
namespace {

constexpr size_t kTextShown = 96;

std::string NameOf(const FaultReport& f) {
  return f.variant.empty() ? f.id : absl::StrCat(f.id, " ", f.variant);
}

// Text on one line.
std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.size() > kTextShown) {
    size_t end = kTextShown;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text = absl::StrCat(text.substr(0, end), " ...");
  }
  return text;
}

std::string ShowTokens(std::span<const TokenId> tokens, const TextOf& text) {
  if (text != nullptr) {
    const std::string shown = text(tokens);
    if (!shown.empty()) return absl::StrCat("\"", OneLine(shown), "\"");
  }
  const size_t n = std::min<size_t>(tokens.size(), 12);
  return absl::StrCat("tokens ", absl::StrJoin(tokens.first(n), " "),
                      n < tokens.size() ? " ..." : "");
}

std::string TwinWord(const FaultReport& f) {
  if (!f.reaches_compute.has_value()) return "-";
  return *f.reaches_compute ? "reaches compute" : "DOES NOT REACH COMPUTE";
}

void AppendLine(const FaultReport& f, int over_width, std::string* out) {
  if (!f.not_applicable.empty()) {
    absl::StrAppendFormat(out, "%-24s %-*s not applicable: %s\n", NameOf(f), over_width,
                          f.connector, f.not_applicable);
    return;
  }
  absl::StrAppendFormat(out, "%-24s %-*s %-22s %-10s %-8s %5d  %-22s %s\n", NameOf(f), over_width,
                        f.connector, f.detected ? f.reason : absl::StrCat("MISSED ", f.reason),
                        f.tokens_equal && f.bystander_equal ? "equal" : "DIFFER",
                        f.held == 0 ? "none" : absl::StrCat(f.held, " HELD"), f.recomputed_tokens,
                        TwinWord(f), f.check);
}

OrderedJson DivergenceJson(const Divergence& d, const TextOf& text) {
  OrderedJson json;
  if (text != nullptr) json["text"] = text(d.tokens);
  json["tokens"] = d.tokens;
  json["first_differing_token"] =
      d.first_differing_token < 0 ? OrderedJson() : OrderedJson(d.first_differing_token);
  json["first_token_distance"] = d.first_token_distance;
  json["kl_by_position"] = d.kl;
  if (!d.error.empty()) json["error"] = d.error;
  return json;
}

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace

bool Report::Passed() const {
  return std::all_of(faults.begin(), faults.end(), [](const FaultReport& f) { return f.Passed(); });
}

std::string FormatTable(const Report& report, const TextOf& text) {
  int over = 7;  // wide enough for a plan
  for (const FaultReport& f : report.faults)
    over = std::max(over, static_cast<int>(f.connector.size()));
  std::string out =
      absl::StrFormat("%-24s %-*s %-22s %-10s %-8s %5s  %-22s %s\n", "fault", over, "over",
                      "detected: reason", "tokens", "leaks", "redo", "guards off", "found by");
  int applicable = 0, passed = 0;
  for (const FaultReport& f : report.faults) {
    AppendLine(f, over, &out);
    applicable += f.not_applicable.empty() ? 1 : 0;
    passed += f.not_applicable.empty() && f.Passed() ? 1 : 0;
  }
  std::map<std::string, bool> ids;  // shown at least once, and never missed
  for (const FaultReport& f : report.faults) {
    if (!f.not_applicable.empty()) continue;
    const auto [id, first] = ids.emplace(f.id, f.Passed());
    if (!first) id->second = id->second && f.Passed();
  }
  const auto good = std::count_if(ids.begin(), ids.end(), [](const auto& id) { return id.second; });
  absl::StrAppend(&out, "\n", good, " of ", ids.size(), " faults in ", passed, " of ", applicable,
                  " entries detected, answered right, without a trace; ",
                  static_cast<int>(report.faults.size()) - applicable, " not applicable.\n");
  absl::StrAppend(&out, "\nWith the guards off, a user would have received\n  ",
                  absl::StrFormat("%-24s %s", "(right)", ShowTokens(report.truth, text)), "\n");
  for (const FaultReport& f : report.faults) {
    if (!f.divergence.has_value()) continue;
    const Divergence& d = *f.divergence;
    absl::StrAppendFormat(&out, "  %-24s %s\n", NameOf(f),
                          d.tokens.empty() && !d.error.empty() ? absl::StrCat("error: ", d.error)
                                                               : ShowTokens(d.tokens, text));
    const double most = d.kl.empty() ? 0 : *std::max_element(d.kl.begin(), d.kl.end());
    absl::StrAppendFormat(
        &out,
        "  %-24s first differing token %s, first token's distributions %.3f apart, KL up to %.3g\n",
        "", d.first_differing_token < 0 ? "none" : absl::StrCat(d.first_differing_token),
        d.first_token_distance, most);
  }
  return out;
}

OrderedJson ToJson(const Report& report, const TextOf& text) {
  OrderedJson json;
  json["passed"] = report.Passed();
  json["model"] = report.model;
  json["connectors"] = report.connectors;
  json["digest"] = report.digest;
  if (text != nullptr) json["text"] = text(report.truth);
  json["tokens"] = report.truth;
  OrderedJson list = OrderedJson::array();
  for (const FaultReport& f : report.faults) {
    OrderedJson one;
    one["id"] = f.id;
    one["variant"] = f.variant;
    one["title"] = f.title;
    one["connector"] = f.connector;
    one["applicable"] = f.not_applicable.empty();
    if (!f.not_applicable.empty()) {
      one["not_applicable"] = f.not_applicable;
      list.push_back(std::move(one));
      continue;
    }
    one["detected"] = f.detected;
    one["check"] = f.check;
    one["reason"] = f.reason;
    one["message"] = f.message;
    one["tokens_equal"] = f.tokens_equal;
    one["others_equal"] = f.bystander_equal;
    one["held"] = f.held;
    one["recomputed_tokens"] = f.recomputed_tokens;
    one["reaches_compute_with_guard_off"] =
        f.reaches_compute.has_value() ? OrderedJson(*f.reaches_compute) : OrderedJson();
    if (!f.reaches_compute.has_value()) one["no_twin"] = f.no_twin;
    if (f.divergence.has_value()) one["guard_off"] = DivergenceJson(*f.divergence, text);
    list.push_back(std::move(one));
  }
  json["faults"] = std::move(list);
  return json;
}

std::string PlotSvg(const Report& report) {
  constexpr double kWidth = 760, kHeight = 420, kLeft = 60, kTop = 40, kRight = 220, kBottom = 50;
  constexpr double kLow = -6, kHigh = 2;  // powers of ten
  static constexpr std::array<const char*, 8> kColours = {
      "#1b6ca8", "#c0392b", "#27ae60", "#8e44ad", "#d35400", "#16a085", "#7f8c8d", "#2c3e50"};
  std::vector<const FaultReport*> shown;
  size_t longest = 2;
  for (const FaultReport& f : report.faults) {
    if (!f.divergence.has_value() || f.divergence->kl.empty()) continue;
    shown.push_back(&f);
    longest = std::max(longest, f.divergence->kl.size());
  }
  const double plot_w = kWidth - kLeft - kRight, plot_h = kHeight - kTop - kBottom;
  const auto x = [&](size_t i) {
    return kLeft + plot_w * static_cast<double>(i) / static_cast<double>(longest - 1);
  };
  const auto y = [&](double power) {
    return kTop + plot_h * (kHigh - std::clamp(power, kLow, kHigh)) / (kHigh - kLow);
  };
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
      "<text x=\"%g\" y=\"22\" font-size=\"14\">KL(right || wrong) along the answer, guards off: %s"
      "</text>\n",
      kWidth, kHeight, kLeft, Escaped(report.model));
  for (int p = static_cast<int>(kLow); p <= static_cast<int>(kHigh); p += 2)
    absl::StrAppendFormat(&svg,
                          "<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
                          "<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">1e%d</text>\n",
                          kLeft, kLeft + plot_w, y(p), y(p), kLeft - 6, y(p) + 4, p);
  absl::StrAppendFormat(
      &svg, "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">token of the answer</text>\n",
      kLeft + plot_w / 2, kHeight - 14);
  for (size_t k = 0; k < shown.size(); ++k) {
    const std::vector<double>& kl = shown[k]->divergence->kl;
    std::string points;
    for (size_t i = 0; i < kl.size(); ++i)
      absl::StrAppendFormat(&points, "%.1f,%.1f ", x(i), y(std::log10(std::max(kl[i], 1e-12))));
    const char* colour = kColours[k % kColours.size()];
    absl::StrAppendFormat(
        &svg, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\"%s points=\"%s\"/>\n",
        colour, k >= kColours.size() ? " stroke-dasharray=\"4 3\"" : "", points);
    absl::StrAppendFormat(&svg, "<text x=\"%g\" y=\"%g\" fill=\"%s\">%s</text>\n",
                          kLeft + plot_w + 12, kTop + 8 + 15.0 * static_cast<double>(k), colour,
                          Escaped(NameOf(*shown[k])));
  }
  return svg + "</svg>\n";
}

}  // namespace baton::drill
