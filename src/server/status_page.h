// The page at "/": what this process is, its counters and the last hand-offs. Plain HTML, no
// outside resources, no script. Thread rule: free functions.
#ifndef BATON_SERVER_STATUS_PAGE_H_
#define BATON_SERVER_STATUS_PAGE_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/generator.h"

namespace baton::server {

using StatusRows = std::vector<std::pair<std::string, std::string>>;

struct StatusPage {
  std::string title;
  StatusRows rows;
  std::vector<engine::HandoffRecord> handoffs;  // newest first
};

std::string EscapeHtml(std::string_view text);
std::string RenderStatusPage(const StatusPage& page);

}  // namespace baton::server

#endif  // BATON_SERVER_STATUS_PAGE_H_
