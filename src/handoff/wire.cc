#include "handoff/wire.h"

#include <xxhash.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "connector/frame.h"

namespace baton {
namespace {

constexpr size_t kSummaryMax = 1024;
constexpr size_t kOfferPartBytes = 8 + 4 + 8 + 8;
constexpr size_t kBlockBytes = kOfferPartBytes + Digest128::kSize;

Status ExpectType(const Frame& frame, FrameType type, const char* name) {
  if (frame.type == type) return absl::OkStatus();
  return Reject(Reason::kMalformed, absl::StrCat("expected a frame of type ", name, ", found type ",
                                                 static_cast<int>(frame.type)));
}

Status Malformed(const char* what) {
  return Reject(Reason::kMalformed, absl::StrCat(what, " does not parse"));
}

// One line per distinct component: enough to see fp16 against bf16 or a swapped axis at a glance.
std::string Summary(const Layout& layout) {
  std::string out =
      absl::StrCat(layout.StatePartCount(), " state parts, ", layout.groups().size(), " KV groups");
  std::vector<std::string> seen;
  for (const StatePart& part : layout.parts()) {
    if (std::find(seen.begin(), seen.end(), part.component) != seen.end()) continue;
    seen.push_back(part.component);
    absl::StrAppend(&out, ", ", part.component, " ", std::string(ElementName(part.dtype)), "[");
    for (size_t i = 0; i < part.shape.size(); ++i)
      absl::StrAppend(&out, i == 0 ? "" : ",", part.shape[i]);
    absl::StrAppend(&out, "] as ", part.axes);
  }
  for (const KvGroup& group : layout.groups())
    absl::StrAppend(&out, ", KV ", group.name, " ", std::string(ElementName(group.dtype)), "[",
                    group.layers.size(), "x", group.kv_heads, "x", group.head_dim, "]");
  absl::StrAppend(&out, ", numerics ", layout.numerics_tag().Hex().substr(0, 8));
  if (!layout.extra().empty()) absl::StrAppend(&out, ", ", layout.extra());
  out.resize(std::min(out.size(), kSummaryMax));
  return out;
}

Digest128 Probe(const Digester& digester) {
  const DigestSeed seed{Sha256Of(std::as_bytes(std::span("baton.digest-probe"))),
                        ElementType::kF32};
  return digester.Digest(seed, {}).digest;
}

std::string AlgorithmText(const Hello& h) {
  return absl::StrCat(std::string(DigestAlgorithmName(static_cast<DigestAlgorithm>(h.algorithm))),
                      " (", static_cast<int>(h.algorithm), ")");
}

void PutIdentity(ByteWriter* w, const ContentIdentity& id) {
  w->Put(id.model);
  w->Put(id.layout);
  w->Put(id.scope);
  w->Put(id.prefix);
  w->Put(id.boundary);
}

ContentIdentity GetIdentity(ByteReader* r) {
  ContentIdentity id;
  id.model = r->Get<Sha256>();
  id.layout = r->Get<Sha256>();
  id.scope = r->Get<Sha256>();
  id.prefix = r->Get<Sha256>();
  id.boundary = r->Get<uint64_t>();
  return id;
}

void PutAddress(ByteWriter* w, const ExtentAddress& address) {
  w->Put(address.region);
  w->Put(address.offset);
  w->Put(address.bytes);
}

ExtentAddress GetAddress(ByteReader* r) {
  ExtentAddress address;
  address.region = r->Get<uint32_t>();
  address.offset = r->Get<uint64_t>();
  address.bytes = r->Get<uint64_t>();
  return address;
}

// The payload without the checksum at its end, which has been compared.
StatusOr<ByteSpan> CheckedBody(const Frame& frame, const char* name) {
  const ByteSpan payload = AsBytes(frame.payload);
  if (payload.size() < sizeof(uint64_t)) return Malformed(name);
  const ByteSpan body = payload.first(payload.size() - sizeof(uint64_t));
  uint64_t hash;
  std::memcpy(&hash, payload.data() + body.size(), sizeof hash);
  if (hash != OfferHash(body))
    return Reject(Reason::kMalformed, absl::StrCat(name, " fails its checksum"));
  return body;
}

}  // namespace

Hello HelloOf(const LocalIdentity& self) {
  Hello h;
  h.protocol = self.protocol;
  h.node = self.node;
  h.epoch = self.epoch;
  h.model = self.model;
  h.layout = self.layout->fingerprint();
  h.algorithm = static_cast<uint8_t>(self.digester.algorithm());
  h.digest_probe = Probe(self.digester);
  h.layout_summary = Summary(*self.layout);
  return h;
}

Frame EncodeHello(const Hello& h) {
  ByteWriter w;
  w.Put(h.protocol);
  w.Put(h.node);
  w.Put(h.epoch);
  w.Put(h.model);
  w.Put(h.layout);
  w.Put(h.algorithm);
  w.Put(h.digest_probe);
  w.PutString(h.layout_summary);
  return Frame{FrameType::kHello, w.Take()};
}

StatusOr<Hello> DecodeHello(const Frame& frame) {
  BATON_RETURN_IF_ERROR(ExpectType(frame, FrameType::kHello, "hello"));
  ByteReader r(AsBytes(frame.payload));
  Hello h;
  h.protocol = r.Get<uint32_t>();
  // Everything after the version may mean something else in another version.
  if (r.ok() && h.protocol != kHandoffProtocolVersion) return h;
  h.node = r.Get<NodeId>();
  h.epoch = r.Get<Epoch>();
  h.model = r.Get<Sha256>();
  h.layout = r.Get<Sha256>();
  h.algorithm = r.Get<uint8_t>();
  h.digest_probe = r.Get<Digest128>();
  h.layout_summary = r.GetString(kSummaryMax);
  if (!r.done()) return Malformed("hello");
  return h;
}

Status MatchHello(const Hello& mine, const Hello& theirs) {
  if (mine.protocol != theirs.protocol)
    return Reject(Reason::kProtocolVersion,
                  absl::StrCat("hand-off protocol: here ", mine.protocol, ", peer ",
                               theirs.protocol, "; run the same version on both"));
  if (mine.algorithm != theirs.algorithm)
    return Reject(Reason::kDigestAlgorithm,
                  absl::StrCat("digest algorithm: here ", AlgorithmText(mine), ", peer ",
                               AlgorithmText(theirs), "; give both the same digest option"));
  if (mine.digest_probe != theirs.digest_probe)
    return Reject(
        Reason::kDigestAlgorithm,
        absl::StrCat("digest key: here it gives ", mine.digest_probe.Hex(), ", at the peer ",
                     theirs.digest_probe.Hex(), "; give both the same key"));
  if (mine.layout != theirs.layout)
    return Reject(
        Reason::kLayoutMismatch,
        absl::StrCat("layout: here ", mine.layout.Hex(), " (", mine.layout_summary, "), peer ",
                     theirs.layout.Hex(), " (", Printable(theirs.layout_summary),
                     "); serve the same model with the same options on both"));
  if (mine.model != theirs.model)
    return Reject(Reason::kModelMismatch,
                  absl::StrCat("model: here ", mine.model.Hex(), ", peer ", theirs.model.Hex(),
                               "; weights, config or adapter differ"));
  return absl::OkStatus();
}

Frame EncodeAsk(const Ask& ask) {
  ByteWriter w;
  w.Put(ask.attempt);
  PutIdentity(&w, ask.expected);
  w.Put(static_cast<uint32_t>(ask.tokens.size()));
  w.PutRaw(AsBytes(ask.tokens));
  w.Put(static_cast<uint8_t>(ask.hint.has_value()));
  if (ask.hint.has_value()) {
    w.Put(ask.hint->boundary);
    w.PutString(ask.hint->endpoint);
  }
  w.Put(ask.deadline_ms);
  w.PutString(std::string_view(ask.label).substr(0, kAskTextMax));
  w.Put(static_cast<uint8_t>(ask.early_blocks));
  w.Put(ask.join_key);
  return Frame{FrameType::kAsk, w.Take()};
}

StatusOr<Ask> DecodeAsk(const Frame& frame) {
  BATON_RETURN_IF_ERROR(ExpectType(frame, FrameType::kAsk, "ask"));
  ByteReader r(AsBytes(frame.payload));
  Ask ask;
  ask.attempt = Attempt(r.Get<uint64_t>());
  ask.expected = GetIdentity(&r);
  const uint64_t boundary = ask.expected.boundary;
  const uint32_t count = r.Get<uint32_t>();
  if (!r.ok() || count > kAskTokensMax || count != boundary || boundary == 0 ||
      FloorToGrid(static_cast<int64_t>(boundary)) != static_cast<int64_t>(boundary))
    return Reject(Reason::kMalformed,
                  absl::StrCat("ask for boundary ", boundary, " with ", count,
                               " tokens: expected as many tokens, a multiple of ", kBlockTokens,
                               " from ", kBlockTokens, " to ", kAskTokensMax));
  const ByteSpan tokens = r.GetRaw(size_t{count} * sizeof(TokenId));
  if (!r.ok()) return Malformed("ask");
  ask.tokens.resize(count);
  std::memcpy(ask.tokens.data(), tokens.data(), tokens.size());
  const uint8_t has_hint = r.Get<uint8_t>();
  if (has_hint == 1) {
    PrefixHint hint;
    hint.boundary = r.Get<uint64_t>();
    hint.endpoint = r.GetString(kAskTextMax);
    if (!r.ok() || hint.boundary == 0 || hint.boundary >= boundary ||
        hint.boundary % kBlockTokens != 0 || hint.endpoint.empty())
      return Malformed("ask's hint");
    ask.hint = std::move(hint);
  }
  ask.deadline_ms = r.Get<uint64_t>();
  ask.label = r.GetString(kAskTextMax);
  const uint8_t early_blocks = r.Get<uint8_t>();
  ask.early_blocks = early_blocks == 1;
  ask.join_key = r.Get<JoinKey>();
  if (has_hint > 1 || early_blocks > 1 || !r.done()) return Malformed("ask");
  return ask;
}

Frame EncodeOffer(const Offer& offer) {
  ByteWriter w;
  w.Put(offer.claim.attempt);
  w.Put(offer.claim.epoch);
  w.Put(offer.claim.state_id);
  w.Put(offer.lease_ms);
  const std::vector<uint8_t> seal = EncodeSeal(offer.claim.seal);
  w.Put(static_cast<uint32_t>(seal.size()));
  w.PutRaw(AsBytes(seal));
  w.Put(static_cast<uint32_t>(offer.claim.block_digests.size()));
  for (const auto& group : offer.claim.block_digests) {
    w.Put(static_cast<uint32_t>(group.size()));
    for (const Digest128& digest : group) w.Put(digest);
  }
  w.Put(static_cast<uint32_t>(offer.parts.size()));
  for (const OfferPart& part : offer.parts) {
    w.Put(part.key);
    PutAddress(&w, part.address);
  }
  w.Put(offer.reused_tokens);
  w.Put(OfferHash(AsBytes(w.data())));
  return Frame{FrameType::kOffer, w.Take()};
}

uint64_t OfferHash(ByteSpan body) { return XXH3_64bits(body.data(), body.size()); }

StatusOr<Offer> DecodeOffer(const Frame& frame) {
  BATON_RETURN_IF_ERROR(ExpectType(frame, FrameType::kOffer, "offer"));
  BATON_ASSIGN_OR_RETURN(const ByteSpan body, CheckedBody(frame, "offer"));
  ByteReader r(body);
  Offer offer;
  offer.claim.attempt = Attempt(r.Get<uint64_t>());
  offer.claim.epoch = r.Get<Epoch>();
  offer.claim.state_id = r.Get<StateId>();
  offer.lease_ms = r.Get<uint64_t>();
  const uint32_t seal_bytes = r.Get<uint32_t>();
  if (!r.ok() || seal_bytes > kMaxSealBytes) return Malformed("offer's seal length");
  const ByteSpan seal = r.GetRaw(seal_bytes);
  if (!r.ok()) return Malformed("offer");
  BATON_ASSIGN_OR_RETURN(offer.claim.seal, DecodeSeal(seal));
  const uint32_t groups = r.Get<uint32_t>();
  if (!r.ok() || groups > Layout::kMaxGroups) return Malformed("offer's group count");
  offer.claim.block_digests.resize(groups);
  for (auto& group : offer.claim.block_digests) {
    const uint32_t count = r.Get<uint32_t>();
    if (!r.ok() || count > r.remaining() / Digest128::kSize) return Malformed("offer's digests");
    group.resize(count);
    for (Digest128& digest : group) digest = r.Get<Digest128>();
  }
  const uint32_t parts = r.Get<uint32_t>();
  if (!r.ok() || parts != r.remaining() / kOfferPartBytes) return Malformed("offer's part count");
  offer.parts.resize(parts);
  for (OfferPart& part : offer.parts) {
    part.key = PartKey(r.Get<uint64_t>());
    part.address = GetAddress(&r);
  }
  offer.reused_tokens = r.Get<uint64_t>();
  if (!r.done()) return Malformed("offer");
  return offer;
}

Frame EncodeBlocks(const BlockOffer& offer) {
  ByteWriter w;
  w.Put(offer.attempt);
  w.Put(offer.epoch);
  w.Put(offer.state_id);
  w.Put(offer.lease_ms);
  w.Put(static_cast<uint32_t>(offer.blocks.size()));
  for (const BlockOffer::Block& block : offer.blocks) {
    w.Put(block.key);
    w.Put(block.digest);
    PutAddress(&w, block.address);
  }
  w.Put(OfferHash(AsBytes(w.data())));
  return Frame{FrameType::kBlocks, w.Take()};
}

StatusOr<BlockOffer> DecodeBlocks(const Frame& frame) {
  BATON_RETURN_IF_ERROR(ExpectType(frame, FrameType::kBlocks, "blocks"));
  BATON_ASSIGN_OR_RETURN(const ByteSpan body, CheckedBody(frame, "offer of blocks"));
  ByteReader r(body);
  BlockOffer offer;
  offer.attempt = Attempt(r.Get<uint64_t>());
  offer.epoch = r.Get<Epoch>();
  offer.state_id = r.Get<StateId>();
  offer.lease_ms = r.Get<uint64_t>();
  const uint32_t count = r.Get<uint32_t>();
  if (!r.ok() || offer.state_id.is_zero() || count == 0 || count > kOfferedBlocksMax ||
      r.remaining() != count * kBlockBytes)
    return Malformed("offer of blocks");
  offer.blocks.resize(count);
  for (BlockOffer::Block& block : offer.blocks) {
    block.key = PartKey(r.Get<uint64_t>());
    block.digest = r.Get<Digest128>();
    block.address = GetAddress(&r);
  }
  if (!r.done()) return Malformed("offer of blocks");
  return offer;
}

Frame EncodeJoin(const JoinKey& key) {
  ByteWriter w;
  w.Put(key);
  return Frame{FrameType::kJoin, w.Take()};
}

StatusOr<JoinKey> DecodeJoin(const Frame& frame) {
  BATON_RETURN_IF_ERROR(ExpectType(frame, FrameType::kJoin, "join"));
  ByteReader r(AsBytes(frame.payload));
  const auto key = r.Get<JoinKey>();
  if (!r.done() || key.is_zero()) return Malformed("join");
  return key;
}

Frame NextFrame() { return Frame{FrameType::kNext, {}}; }
Frame JoinedFrame() { return Frame{FrameType::kJoined, {}}; }
Frame ReleaseFrame() { return Frame{FrameType::kRelease, {}}; }

}  // namespace baton
