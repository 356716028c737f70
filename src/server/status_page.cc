#include "server/status_page.h"

#include "absl/strings/str_format.h"
#include "server/cat.h"

namespace baton::server {
namespace {

constexpr std::string_view kStyle = R"(<style>
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem}
h1{font-size:1.4rem;margin:0 0 1rem}h2{font-size:1.05rem;margin:2rem 0 .5rem}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid #8884;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
code{font-size:.9em}.ok{color:#2a8a3e}.bad{color:#c33;font-weight:600}
</style>)";

std::string HandoffRow(const engine::HandoffRecord& h) {
  const std::string verdict = h.verified ? std::string("<span class=ok>verified</span>")
                                         : Cat("<span class=bad>rejected</span> ",
                                               EscapeHtml(h.reason), " ", EscapeHtml(h.message));
  return Cat("<tr><td><code>", EscapeHtml(h.state_id.substr(0, 12)), "</code></td><td class=n>",
             h.boundary, "</td><td class=n>", h.parts, "</td><td class=n>", h.kv_bytes,
             "</td><td class=n>", h.state_bytes, "</td><td class=n>",
             absl::StrFormat("%.2f", h.milliseconds), "</td><td class=n>",
             absl::StrFormat("%.2f", h.wait_milliseconds), "</td><td>", EscapeHtml(h.connector),
             "</td><td>", verdict, "</td></tr>\n");
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

std::string RenderStatusPage(const StatusPage& page) {
  std::string html =
      Cat("<!doctype html><html lang=en><meta charset=utf-8>"
          "<meta name=viewport content=\"width=device-width\"><title>",
          EscapeHtml(page.title), "</title>", kStyle, "<h1>", EscapeHtml(page.title),
          "</h1>\n<table>\n");
  for (const auto& [name, value] : page.rows) {
    CatTo(&html, "<tr><th>", EscapeHtml(name), "</th><td>", EscapeHtml(value), "</td></tr>\n");
  }
  html += "</table>\n<h2>Recent hand-offs</h2>\n";
  if (page.handoffs.empty()) {
    html += "<p>None yet.</p>";
  } else {
    html +=
        "<table>\n<tr><th>state</th><th class=n>boundary</th><th class=n>parts</th>"
        "<th class=n>KV bytes</th><th class=n>state bytes</th><th class=n>ms</th>"
        "<th class=n>wait ms</th><th>connector</th><th>verdict</th></tr>\n";
    for (const auto& record : page.handoffs) html += HandoffRow(record);
    html += "</table>\n";
  }
  html += "<p><a href=\"/metrics\">metrics</a> · <a href=\"/health\">health</a></p></html>\n";
  return html;
}

}  // namespace baton::server
