#include "connector/hostile/attacks.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace baton {
namespace {

// Honest first, then `change` on each landed extent.
Attack AfterLanding(std::string name, std::function<void(const ReadExtent&)> change) {
  Attack attack;
  attack.name = std::move(name);
  attack.pull = [change = std::move(change)](const PullCall& call) {
    PullOutcome outcome = call.Honest();
    if (outcome.status.ok())
      for (const ReadExtent& e : call.extents) change(e);
    return outcome;
  };
  return attack;
}

Attack OnPart(std::string name, PartKey part, std::function<void(MutableByteSpan)> change) {
  return AfterLanding(std::move(name), [part, change = std::move(change)](const ReadExtent& e) {
    if (e.part == part) change(e.destination);
  });
}

// `change` on the offer's payload without its checksum.
Attack OnOfferBytes(std::string name,
                    bool fix_checksum,
                    std::function<void(std::vector<uint8_t>*)> change) {
  Attack attack;
  attack.name = std::move(name);
  attack.receive = [fix_checksum, change = std::move(change)](Frame* frame) {
    if (frame->type != FrameType::kOffer || frame->payload.size() < sizeof(uint64_t)) return;
    change(&frame->payload);
    if (!fix_checksum) return;
    const size_t body = frame->payload.size() - sizeof(uint64_t);
    const uint64_t hash = OfferHash(AsBytes(frame->payload).first(body));
    std::memcpy(frame->payload.data() + body, &hash, sizeof hash);
  };
  return attack;
}

}  // namespace

Attack SubstitutePayload(std::shared_ptr<const CapturedPull> captured, PartFilter filter) {
  return AfterLanding("substitute_payload", [captured = std::move(captured),
                                             filter = std::move(filter)](const ReadExtent& e) {
    if (filter != nullptr && !filter(e.part)) return;
    const auto it = captured->parts.find(e.part);
    if (it == captured->parts.end() || it->second.size() != e.destination.size()) return;
    std::copy(it->second.begin(), it->second.end(), e.destination.begin());
  });
}

Attack SwapParts(PartKey a, PartKey b) {
  Attack attack;
  attack.name = "swap_parts";
  attack.pull = [a, b](const PullCall& call) {
    PullOutcome outcome = call.Honest();
    const ReadExtent* found[2] = {nullptr, nullptr};
    for (const ReadExtent& e : call.extents) {
      if (e.part == a) found[0] = &e;
      if (e.part == b) found[1] = &e;
    }
    if (outcome.status.ok() && found[0] != nullptr && found[1] != nullptr &&
        found[0]->bytes == found[1]->bytes)
      std::swap_ranges(found[0]->destination.begin(), found[0]->destination.end(),
                       found[1]->destination.begin());
    return outcome;
  };
  return attack;
}

Attack ZeroPart(PartKey part) {
  return OnPart("zero_part", part,
                [](MutableByteSpan bytes) { std::fill(bytes.begin(), bytes.end(), std::byte{0}); });
}

Attack DropOfferedPart(PartKey part) {
  Attack attack = RewriteOffer([part](Offer* offer) {
    std::erase_if(offer->parts, [part](const OfferPart& p) { return p.key == part; });
  });
  attack.name = "drop_offered_part";
  return attack;
}

Attack MoveNothing(bool report_landed) {
  Attack attack;
  attack.name = report_landed ? "move_nothing_claim_all" : "move_nothing_claim_success";
  attack.pull = [report_landed](const PullCall& call) {
    PullOutcome outcome;
    for (const ReadExtent& e : call.extents) outcome.landed.push_back(report_landed ? e.bytes : 0);
    return outcome;
  };
  return attack;
}

Attack TearPart(PartKey part) {
  return OnPart("tear_part", part, [](MutableByteSpan bytes) {
    const MutableByteSpan late = bytes.subspan(bytes.size() / 2);
    std::fill(late.begin(), late.end(), std::byte{0});
  });
}

Attack FlipBytes(PartKey part, uint64_t offset, uint64_t bytes, uint8_t mask) {
  return OnPart("flip_bytes", part, [offset, bytes, mask](MutableByteSpan all) {
    const uint64_t begin = std::min<uint64_t>(offset, all.size());
    const uint64_t end = std::min<uint64_t>(all.size(), begin + bytes);
    for (uint64_t i = begin; i < end; ++i) all[i] ^= std::byte{mask};
  });
}

Attack InjectNaN(PartKey part) {
  return OnPart("inject_nan", part, [](MutableByteSpan bytes) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    if (bytes.size() >= sizeof nan) std::memcpy(bytes.data(), &nan, sizeof nan);
  });
}

Attack NeverQuiet() {
  Attack attack;
  attack.name = "never_quiet";
  attack.pull = [](const PullCall& call) {
    PullOutcome outcome = call.Honest();
    outcome.quiet = false;
    return outcome;
  };
  return attack;
}

Attack FlipOfferBit(uint64_t bit, bool fix_checksum) {
  return OnOfferBytes("flip_offer_bit", fix_checksum, [bit](std::vector<uint8_t>* payload) {
    (*payload)[bit / 8 % payload->size()] ^= uint8_t{1} << (bit % 8);
  });
}

Attack FlipSealBit(uint64_t bit) {
  return OnOfferBytes("flip_seal_bit", true, [bit](std::vector<uint8_t>* payload) {
    uint32_t seal_bytes = 0;
    const size_t begin = kOfferSealLengthAt + sizeof seal_bytes;
    if (payload->size() < begin) return;
    std::memcpy(&seal_bytes, payload->data() + kOfferSealLengthAt, sizeof seal_bytes);
    if (seal_bytes == 0 || payload->size() - begin < seal_bytes) return;
    (*payload)[begin + bit / 8 % seal_bytes] ^= uint8_t{1} << (bit % 8);
  });
}

Attack RewriteOffer(std::function<void(Offer*)> change) {
  Attack attack;
  attack.name = "rewrite_offer";
  attack.receive = [change = std::move(change)](Frame* frame) {
    if (frame->type != FrameType::kOffer) return;
    auto offer = DecodeOffer(*frame);
    if (!offer.ok()) return;
    change(&*offer);
    *frame = EncodeOffer(*offer);
  };
  return attack;
}

Attack ReplayOffer(std::shared_ptr<const CapturedPull> captured,
                   std::function<void(Offer*)> change) {
  Attack attack;
  attack.name = "replay_offer";
  attack.receive = [captured = std::move(captured), change = std::move(change)](Frame* frame) {
    if (frame->type != FrameType::kOffer) return;
    auto offer = DecodeOffer(captured->offer);
    if (!offer.ok()) return;
    if (change != nullptr) change(&*offer);
    *frame = EncodeOffer(*offer);
  };
  return attack;
}

Attack PatchOffer(uint64_t offset, std::vector<uint8_t> bytes) {
  return OnOfferBytes("patch_offer", true,
                      [offset, bytes = std::move(bytes)](std::vector<uint8_t>* payload) {
                        for (size_t i = 0; i < bytes.size(); ++i)
                          if (offset + i < payload->size()) (*payload)[offset + i] = bytes[i];
                      });
}

Attack OnOffer(std::function<void()> act) {
  Attack attack;
  attack.name = "on_offer";
  attack.receive = [act = std::move(act)](Frame* frame) {
    if (frame->type == FrameType::kOffer) act();
  };
  return attack;
}

Attack BeforePull(std::function<void()> act, bool ignore_deadline) {
  Attack attack;
  attack.name = "before_pull";
  attack.pull = [act = std::move(act), ignore_deadline](const PullCall& call) {
    act();
    PullCall late = call;
    if (ignore_deadline) late.deadline = Instant::max();
    return late.Honest();
  };
  return attack;
}

Attack AfterPull(std::function<void()> act) {
  Attack attack;
  attack.name = "after_pull";
  attack.pull = [act = std::move(act)](const PullCall& call) {
    PullOutcome outcome = call.Honest();
    act();
    return outcome;
  };
  return attack;
}

}  // namespace baton
