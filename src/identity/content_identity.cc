#include "identity/content_identity.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"

namespace baton {
namespace {

constexpr std::string_view kContentTag("baton.content\0", 14);

Status Differs(Reason reason, std::string_view field, const Sha256& expected, const Sha256& found) {
  return Reject(reason, absl::StrCat("content identity: ", std::string(field), ": expected ",
                                     expected.Hex(), ", found ", found.Hex()));
}

}  // namespace

Sha256 ContentIdentity::Key() const {
  ByteWriter w;
  w.PutRaw(std::as_bytes(std::span(kContentTag.data(), kContentTag.size())));
  w.Put(model);
  w.Put(layout);
  w.Put(scope);
  w.Put(prefix);
  w.Put(boundary);
  return Sha256Of(AsBytes(w.data()));
}

std::string ContentIdentity::ToString() const {
  return absl::StrCat("boundary ", boundary, ", key ", Key().Hex().substr(0, 16));
}

Status MatchIdentity(const ContentIdentity& expected, const ContentIdentity& found) {
  if (expected.model != found.model)
    return Differs(Reason::kModelMismatch, "model (weights, config or adapter)", expected.model,
                   found.model);
  if (expected.layout != found.layout)
    return Differs(Reason::kLayoutMismatch, "layout", expected.layout, found.layout);
  if (expected.scope != found.scope)
    return Differs(Reason::kScopeMismatch, "scope (tenant salt)", expected.scope, found.scope);
  if (expected.boundary != found.boundary)
    return Reject(Reason::kBoundaryMismatch,
                  absl::StrCat("content identity: boundary: expected ", expected.boundary,
                               " tokens, found ", found.boundary));
  if (expected.prefix != found.prefix)
    return Differs(Reason::kIdentityMismatch, "prefix (token history)", expected.prefix,
                   found.prefix);
  return absl::OkStatus();
}

}  // namespace baton
