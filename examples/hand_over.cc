// A made-up engine hands the state of a sequence to another process and goes on there.
//
// Its "model" keeps one running sum per channel (the recurrent state) and the tokens themselves (as
// KV): enough to see that the other process continues from the right place. The parent computes the
// prompt, seals and offers; the child derives what it expects from its own tokens, pulls, and gets
// either that bundle, verified, or an error that says why not.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "baton/state_plane.h"

namespace plane = baton::plane;

namespace {

constexpr int kChannels = 8;

void Require(const plane::Status& status, const char* what) {
  if (status) return;
  std::fprintf(stderr, "%s: %s %s\n", what, status.reason.c_str(), status.message.c_str());
  std::exit(1);
}

// What both processes agree on: the model, and how its state lies in memory.
plane::Options EngineOptions(std::vector<std::string> listen) {
  plane::Options o;
  o.model.fill(0x42);     // in a real engine: a digest of every weight and the config
  o.numerics.fill(0x01);  // what two builds must share to give equal bits
  o.parts = {{0, "sum", plane::Element::kF32, {kChannels}, "channel"}};
  o.groups = {{"full", {1}, 1, 1, plane::Element::kF32}};  // K[1][16], V[16]
  o.listen = std::move(listen);
  return o;
}

// The step of the made-up engine: state[c] = 0.5 state[c] + token (c + 1); K and V hold the token.
void Step(plane::Sequence& sequence, std::span<const uint32_t> tokens) {
  const uint64_t at = sequence.boundary();
  Require(sequence.Extend(at + tokens.size()), "extend");
  plane::Status status;
  {
    const auto lease = sequence.Pin(&status);
    Require(status, "pin");
    auto* state = reinterpret_cast<float*>(lease->part(0).data());
    for (size_t i = 0; i < tokens.size(); ++i) {
      for (int c = 0; c < kChannels; ++c)
        state[c] = 0.5F * state[c] + static_cast<float>(tokens[i]) * static_cast<float>(c + 1);
      const uint64_t position = at + i;
      auto* block = reinterpret_cast<float*>(lease->block(0, position / plane::kGrid).data());
      block[position % plane::kGrid] = static_cast<float>(tokens[i]);                 // K
      block[plane::kGrid + position % plane::kGrid] = static_cast<float>(tokens[i]);  // V
    }
  }
  // In the same breath: what the memory now holds.
  Require(sequence.Advance(tokens), "advance");
}

float Answer(plane::Sequence& sequence) {
  plane::Status status;
  const auto lease = sequence.Pin(&status);
  Require(status, "pin");
  return reinterpret_cast<const float*>(lease->part(0).data())[kChannels - 1];
}

int Decode(const std::string& endpoint, const std::vector<uint32_t>& prompt, float expected) {
  plane::Status status;
  const auto node = plane::StatePlane::Create(EngineOptions({}), &status);
  Require(status, "decode: create");

  // Other tokens: nothing here is adopted from the peer, so this cannot be answered wrongly.
  std::vector<uint32_t> other = prompt;
  other[3] += 1;
  const auto wrong = node->Pull({endpoint, "tenant", std::chrono::seconds(5)}, other, &status);
  std::printf("other tokens: %s (%s)\n", wrong.has_value() ? "GOT ONE" : "refused",
              status.reason.c_str());

  auto sequence = node->Pull({endpoint, "tenant", std::chrono::seconds(5)}, prompt, &status);
  Require(status, "decode: pull");
  std::printf("right tokens: verified at boundary %llu\n",
              static_cast<unsigned long long>(sequence->boundary()));
  const std::vector<uint32_t> next = {3, 5, 7};
  Step(*sequence, next);
  const float answer = Answer(*sequence);
  std::printf("continued: %.6g, one process alone: %.6g\n", answer, expected);
  return !wrong.has_value() && answer == expected ? 0 : 1;
}

}  // namespace

int main() {
  std::vector<uint32_t> prompt(32);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<uint32_t>(i * i % 11);
  const std::string endpoint = "shm:@baton-example-" + std::to_string(getpid());

  int ready[2];
  if (pipe(ready) != 0) return 1;
  float expected = 0;
  const pid_t child = fork();
  if (child == 0) {  // decode
    close(ready[1]);
    if (read(ready[0], &expected, sizeof expected) != sizeof expected) return 1;
    return Decode(endpoint, prompt, expected);
  }

  // prefill
  close(ready[0]);
  plane::Status status;
  const auto node = plane::StatePlane::Create(EngineOptions({endpoint}), &status);
  Require(status, "prefill: create");
  auto alone = node->Begin("tenant", &status);
  Require(status, "prefill: begin");
  Step(*alone, prompt);
  const std::vector<uint32_t> next = {3, 5, 7};
  Step(*alone, next);
  expected = Answer(*alone);

  auto sequence = node->Begin("tenant", &status);
  Require(status, "prefill: begin");
  Step(*sequence, prompt);
  const auto offer = std::move(*sequence).MakeOffer(&status);
  Require(status, "prefill: offer");
  std::printf("offered state-id %s\n", offer->state_id().c_str());
  std::fflush(stdout);
  if (write(ready[1], &expected, sizeof expected) != sizeof expected) return 1;

  const bool pulled = offer->WaitReleased(std::chrono::seconds(10));
  int result = 1;
  waitpid(child, &result, 0);
  std::printf("%s\n", pulled && result == 0 ? "handed over" : "FAILED");
  return pulled && result == 0 ? 0 : 1;
}
